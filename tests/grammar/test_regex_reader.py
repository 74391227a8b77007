"""Regular expressions as nodes: what is read means what Python reads, and the rest is refused."""

from __future__ import annotations

import json
import re

import pytest
from ebnf_meaning import Reading
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.grammar.ebnf_tree import Alt, Chars, Repeat, Seq
from anychip.grammar.ebnf_writer import in_json, written
from anychip.grammar.errors import GrammarError
from anychip.grammar.formats import FORMAT_PATTERNS
from anychip.grammar.keywords import FORMATS
from anychip.grammar.regex_reader import read_regex


def matches(pattern, text, **options):
    node = read_regex(pattern, **options)
    return len(text) in Reading({"root": node}, text).ends("root", 0)


PARTS = st.sampled_from(
    ["a", "b", "ab", ".", "[ab]", "[^a]", r"\d", r"\W", r"[\da]", "a?", "b*", "a+?", "a{2}", r"\."]
)
expressions = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        inner.map("(?:{}){{1,2}}".format),
    ),
    max_leaves=5,
)
texts = st.text("ab1.\n-", max_size=5)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions, texts)
def test_a_pattern_means_what_python_reads(pattern, text):
    found = re.compile(pattern, re.ASCII)
    assert matches(pattern, text) == bool(found.fullmatch(text))
    assert matches(pattern, text, anywhere=True) == bool(found.search(text))


ANCHORED = {
    "^a": (["a", "ab"], ["ba"]),
    "a$": (["a", "ba"], ["ab"]),
    "^a|b$": (["a", "ac", "cb"], ["ca", "bc"]),
    "^(a|b)$": (["a", "b"], ["ab", ""]),
    "": (["", "x"], []),
}


@pytest.mark.parametrize("pattern", ANCHORED)
def test_anchors_hold_where_they_stand(pattern):
    good, bad = ANCHORED[pattern]
    assert all(matches(pattern, text, anywhere=True) for text in good)
    assert not any(matches(pattern, text, anywhere=True) for text in bad)


REFUSED = {
    "(?i)a": "a group of this kind at character 0",
    "a(?P<1>b)": "a group of this kind at character 1",
    r"\p{L}": r"the escape \\p",
    r"\q": r"the escape \\q",
    r"\x{d800}": "a character that cannot be generated",
    r"\ud800": "a character that cannot be generated",
    r"\x00": "a character that cannot be generated",
    "a^b": r"'\^' has nothing to act on",
    "a$b": r"more after a \$ at character 2",
    "(a$)": "an anchor inside of a group",
    "*a": r"'\*' has nothing to act on",
    "a**": "two repetitions",
    "a{x}": "a brace that is no repetition",
    "a{3,1}": "is empty",
    "(a": "a group that does not end at character 0",
    "a)": "a bracket that nothing opened",
    "[a": "a character class that does not end at character 0",
    "[]": "inside of a class|does not end",
    "[^\\x{1}-\\x{10FFFF}]": "an empty character class",
    "[b-a]": "an empty range",
    r"[\d-z]": "an empty range, or one of sets",
    "[a[b]]": "a bracket inside of a class",
    "[a&&b]": "an operation on sets",
    "[a--b]": "an operation on sets",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_not_read_is_refused_with_its_place(pattern):
    with pytest.raises(GrammarError, match=REFUSED[pattern]) as caught:
        read_regex(pattern, "/pattern")
    assert caught.value.pointer == "/pattern"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from([".", "[^a]", r"\s", r'["\\/]', r"\W", '"', r"\n", r"[\n-z]"]))
def test_in_json_a_pattern_is_a_string_that_reads_back(pattern):
    node, whole = in_json(read_regex(pattern), None), read_regex(pattern)
    for code in [*range(1, 128), 0xE9, 0x1F642]:
        for spelled in {chr(code), json.dumps(chr(code))[1:-1]}:
            if len(spelled) in Reading({"root": node}, spelled).ends("root", 0):
                value = json.loads(f'"{spelled}"')
                assert 1 in Reading({"root": whole}, value).ends("root", 0)


def test_a_character_that_json_only_spells_by_number_is_refused():
    with pytest.raises(GrammarError, match="control character"):
        in_json(read_regex(r"\x01"), "/pattern")


def test_ebnf_is_written_so_that_nothing_runs_together():
    node = Seq((read_regex("é1|[a\\-\\]]{2}"), Repeat(Alt(()), 0, 0), Chars(((2, 3),))))
    assert written(node) == (
        '((([\\U000000e9] [1]) | (([\\U0000002d\\U0000005da]){2,2})) "" [\\U00000002-\\U00000003])'
    )


FORMATTED = {
    "date": (["2024-02-29", "1999-12-31"], ["2024-02-30", "2024-13-01", "0000-01-01"]),
    "time": (["23:59:59Z", "00:00:00.5+01:00"], ["24:00:00Z", "12:00Z"]),
    "date-time": (["2024-02-29T00:00:00Z"], ["2024-02-29 00:00:00Z"]),
    "duration": (["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"], ["P", "PT", "P1S"]),
    "email": (["a.b+c@d-e.org"], ["a@", "@b", "a..b@c", "a@-b"]),
    "hostname": (["a", "a-b.example"], ["-a", "a-", "a..b"]),
    "ipv4": (["0.0.0.0", "255.10.9.1"], ["256.0.0.1", "01.0.0.0", "1.2.3"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "fe80::a:b", "::ffff:1.2.3.4"], [":", "1::2::3"]),
    "uuid": (["0123abcd-0123-0123-0123-0123456789AB"], ["0123abcd-0123-0123-0123-0123456789A"]),
    "uri": (["http://a.b:80/c?d=e#f", "mailto:a@b.c", "urn:x:%20y"], ["a", ":b", "http://a b"]),
}


def test_each_format_has_a_pattern():
    assert set(FORMAT_PATTERNS) == set(FORMATS) == set(FORMATTED)


@pytest.mark.parametrize("name", FORMATTED)
def test_a_format_takes_and_refuses(name):
    good, bad = FORMATTED[name]
    assert [text for text in good if not matches(FORMAT_PATTERNS[name], text)] == []
    assert [text for text in bad if matches(FORMAT_PATTERNS[name], text)] == []
