"""Regular expressions: what an automaton can follow, and the rest refused by its name."""

from __future__ import annotations

import json

import pytest
from grammar_vocabulary import takes

from anychip.grammar.errors import GrammarError
from anychip.grammar.patterns import MAX_BYTES, check_pattern
from anychip.request import GrammarSpec

REFUSED = {
    "(?=a)b": "look-around",
    "(?!a)b": "look-around",
    "(?<=a)b": "look-around",
    "a(?<!a)b": "look-around",
    r"(a)\1": "back-reference",
    r"(?P<x>a)(?P=x)": "back-reference",
    r"(?<x>a)\k<x>": "back-reference",
    "(?>a)": "atomic",
    "a++": "possessive",
    "a{2,3}+": "possessive",
    "(a)(?(1)b|c)": "conditional",
    "(?R)": "recursion",
    "(?1)": "recursion",
    "(?#x)a": "comment",
    "(?x)a b": "verbose",
    r"\bword\b": "word boundary",
    r"\cA": "control escape",
    "a\0": "NUL",
    "a{100001}": "at most 100000",
    "(" * 101 + ")" * 101: "nests deeper",
    "a" * (MAX_BYTES + 1): "at most 65536",
}


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: pattern[:20])
def test_a_construct_that_cannot_be_followed_is_named(pattern):
    with pytest.raises(GrammarError, match=REFUSED[pattern]):
        check_pattern(pattern, "/pattern")


def test_the_refusal_has_the_place():
    with pytest.raises(GrammarError, match="at character 5") as caught:
        check_pattern("ab(?:(?=c)d)", "/p")
    assert caught.value.pointer == "/p"


@pytest.mark.parametrize(
    "pattern", [r"\(\?=a", "[(?=a)]+", r"[\b]", r"\\1", "a{2}", "(?i)x", "[*+]+"]
)
def test_what_only_looks_like_it_is_taken(pattern):
    check_pattern(pattern)


MEANINGS = {
    "[0-9]{3}-[a-z]+": (["123-a", "000-zz"], ["12-a", "123-", "123-A", "1234-a"]),
    "^(yes|no)$": (["yes", "no"], ["y", "yesno", ""]),
    "a*b": (["b", "aaab"], ["", "a", "ba"]),
    r"\d+\.\w": (["1.a", "12._"], ["١.a", "1.é", "1."]),
    "a/b|c\nd": (["a/b", "c\nd"], ["a", "c d"]),
    "(?i)ok": (["ok", "OK", "oK"], ["o"]),
    "[^a-c]": (["d", "é", "日", "🙂"], ["a", "", "dd"]),
    ".{2}": (["ab", "日本"], ["a\n", "a"]),
    "(a|ab)(c|bcd)": (["ac", "abc", "abcd", "abbcd"], ["ab", "abcb"]),
}


@pytest.mark.parametrize("pattern", MEANINGS)
def test_a_regex_has_to_match_the_whole_output(compiler, backend, vocabulary, pattern):
    if backend == "xgrammar" and pattern.startswith("(?i)"):
        with pytest.raises(GrammarError, match="a group of this kind at character 0"):
            compiler.compile(GrammarSpec("regex", pattern))
        return
    grammar = compiler.compile(GrammarSpec("regex", pattern))
    good, bad = MEANINGS[pattern]
    assert [text for text in good if not takes(grammar, vocabulary, text)] == []
    assert [text for text in bad if takes(grammar, vocabulary, text)] == []


@pytest.mark.parametrize("pattern", ["(", "[a", "a$b", "*", "a{3,1}"])
def test_a_broken_regex_is_refused(compiler, pattern):
    with pytest.raises(GrammarError):
        compiler.compile(GrammarSpec("regex", pattern))


def test_a_choice_is_one_of_its_texts(compiler, vocabulary):
    texts = ["a", "ab", "abc b", 'qu"ote', "back\\slash", "new\nline", "日本", "a/b", "\x07"]
    grammar = compiler.compile(GrammarSpec("choice", json.dumps(texts)))
    assert [text for text in texts if not takes(grammar, vocabulary, text)] == []
    assert not any(takes(grammar, vocabulary, text) for text in ["", "b", "abc", "aab", "日"])


@pytest.mark.parametrize(
    ("text", "pointer"),
    [("[]", None), ('{"a": 1}', None), ('["a", 1]', "/1"), ('["a", ""]', "/1"), ("a", None)],
)
def test_a_broken_choice_is_refused(compiler, text, pointer):
    with pytest.raises(GrammarError) as caught:
        compiler.compile(GrammarSpec("choice", text))
    assert caught.value.pointer == pointer
