"""Stop patterns: what they match, where they cut, and what they cost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anychip.patterns.errors import PatternError
from anychip.patterns.program import MAX_STATES, Program
from anychip.text.stop import HELD_MOST, StopChecker, stop_patterns

PATTERNS = [
    "ab+a",
    "a{2,3}b",
    "(a|b)c",
    "(?:ab|a)(?:b|bc)",
    "[^a]a",
    "[a-b]c?[c]",
    "^b",
    "(?m)^c",
    r"\Aab",
    "a.c",
    "(?s)a.c",
    "(?i)AB",
    "(?i:A)B",
    "(?P<x>a)bc",
    "a*?b{2}",
    "(?:a?){3}b",
    "(?:a|ab)*c",
    "b(?:a*)*c",
    r"\wb\s",
    r"[\d\n]c",
    r"\x61b",
    "a{,2}c",
    "ab{1",
    "(?:^a|b)c",
]
TEXT = st.text(alphabet="abcAB{1\n", max_size=14)


def by_hand(pattern, text):
    """The match that ends first, and begins first of those: with Python's `re`."""
    compiled = re.compile(pattern)
    for end in range(1, len(text) + 1):
        for begin in range(end):
            if compiled.fullmatch(text, begin, end):
                return text[:begin]
    return None


def run(patterns, deltas, stops=(), **options):
    """What was emitted, delta by delta, and the stop."""
    checker, emitted = StopChecker(stops, stop_patterns(patterns), **options), []
    for delta in deltas:
        result = checker.feed(delta)
        emitted.append(result.text_to_emit)
        if result.stopped is not None:
            return emitted, result.stopped
    return [*emitted, checker.flush()], None


@given(st.sampled_from(PATTERNS), st.lists(TEXT, max_size=4))
def test_a_match_is_that_of_re_which_ends_first_however_the_text_is_cut(pattern, deltas):
    text, (emitted, stopped) = "".join(deltas), run([pattern], deltas)
    expected = by_hand(pattern, text)
    assert "".join(emitted) == (text if expected is None else expected)
    assert stopped == (None if expected is None else pattern)


@given(st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=4), TEXT, st.integers(0, 14))
def test_of_several_the_first_end_counts_then_the_first_beginning(patterns, text, cut):
    emitted, stopped = run(patterns, [text[:cut], text[cut:]])
    found = {pattern: by_hand(pattern, text) for pattern in patterns}
    ends = {p: next(i for i in range(len(text) + 1) if by_hand(p, text[:i]) is not None)
            for p, cut_text in found.items() if cut_text is not None}  # fmt: skip
    first = [p for p in patterns if p in ends and ends[p] == min(ends.values())]
    assert "".join(emitted) == min((found[p] for p in first), key=len, default=text)
    assert stopped in first or (stopped is None and not first)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_text_of_four_characters(pattern):
    for number in range(0, 4**5, 3):
        text = "".join("abc\n"[number >> 2 * place & 3] for place in range(5))
        expected = by_hand(pattern, text)
        assert "".join(run([pattern], [text])[0]) == (text if expected is None else expected)


def test_nothing_of_a_match_is_emitted_before_it_is_known_to_be_none():
    emitted, stopped = run([r"\nUser\d+:"], ["Hi", "\nUs", "er1", "2", ": more"])
    assert emitted == ["Hi", "", "", "", ""] and stopped == r"\nUser\d+:"
    assert run(["ab+c"], ["xab", "bb", "d", "ab"])[0] == ["x", "", "abbbd", "", "ab"]


def test_text_is_held_up_to_a_bound_and_the_stop_still_comes():
    begun, deltas = 0, ["<" + "x" * 999, *["y" * 1000] * 9, "z>", "more"]
    checker, emitted = StopChecker((), stop_patterns(["<.*>"])), ""
    for delta in deltas:
        result = checker.feed(delta)
        emitted, begun = emitted + result.text_to_emit, begun + len(delta)
        if result.stopped is not None:
            break
        assert len(emitted) == max(0, begun - HELD_MOST)
    assert result.stopped == "<.*>"
    whole = StopChecker((), stop_patterns(["<.*>"])).feed("".join(deltas))
    assert whole.text_to_emit == emitted == "".join(deltas)[: 10_002 - HELD_MOST - 1]


def test_a_string_and_a_pattern_together():
    assert run(["b+c"], ["aabbc"], ["bc"]) == (["aa"], "b+c")
    assert run(["b+c"], ["aabbc"], ["abbc"]) == (["a"], "abbc")
    assert run(["b"], ["aabbc"], ["c"]) == (["aa"], "b")


def test_untrimmed_text_keeps_the_stop_and_is_never_held():
    options = {"stops": ["STOP"], "trim": False}
    assert run(["a+b"], ["xa", "a", "ab?"], **options) == (["xa", "a", "ab"], "a+b")
    assert run(["a+b"], ["x ST", "OP!"], **options) == (["x ST", "OP"], "STOP")


def test_a_flush_releases_what_was_held_and_the_search_goes_on():
    checker = StopChecker((), stop_patterns(["abc", "^z"]))
    assert checker.feed("xab").text_to_emit == "x" and checker.flush() == "ab"
    assert checker.feed("c").text_to_emit == "c", "the beginning was emitted"
    assert checker.feed("z").text_to_emit == "z", "not at the text's beginning"
    assert checker.feed("1abc").stopped == "abc"


REFUSED = {
    "a(?=b)": "look-around",
    "(?<!a)b": "look-around",
    "(?P=x)": "look-around, a back-reference",
    r"(a)\1": "back-reference",
    "(?>a)": "not supported",
    "a++": "possessive",
    "a$": r"\$: it looks at text that has not come yet",
    r"\ba": "has not come yet",
    r"a\Z": "has not come yet",
    "a*": "matches the empty text",
    "^": "matches the empty text",
    "a|": "matches the empty text",
    "": "matches the empty text",
    "(a": r"without its '\)'",
    "a)": "closes nothing",
    "[a": r"without its '\]'",
    "[b-a]": "broken range",
    "a**": "repeat of a repeat",
    "*a": "nothing to repeat",
    "{2}a": "nothing to repeat",
    "^*a": "a beginning",
    "a{3,2}": "a repeat from 3 to 2",
    r"\q": r"unknown escape \\q",
    r"\xg1": "hexadecimal",
    r"\U00110000": "no character",
    "(?x)a": "flags 'x'",
    "a\0": "NUL",
    "a\ud800": "lone surrogate",
    "\\": "backslash at the end",
    "((((((((((((((((((((((a))))))))))))))))))))))": "groups inside of groups",
    "a" * 257: "257 bytes; at most 256",
    "é" * 129: "258 bytes",
    "(?:(?:a{1,99}){1,99}){1,99}": "at most 512",
    "a{999999999999999999}": "at most 512",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_cannot_be_searched_for_is_refused(pattern):
    with pytest.raises(PatternError, match=REFUSED[pattern]) as caught:
        Program(["ok", pattern])
    assert caught.value.index == 1


def test_the_count_is_bounded_and_states_count_together():
    Program(["a"] * 32)
    with pytest.raises(PatternError, match="33 patterns; at most 32"):
        Program(["a"] * 33)
    with pytest.raises(PatternError, match="605 states") as caught:
        Program(["a{300}b", "c", "a{300}"])
    assert caught.value.index == 2


EXPENSIVE = ["(?:a+)+b", "(?:a|aa)+b", "a{1,240}b", ".*.*.*b", "(?:a?){200}b", "(?:a*){20}b"]


@pytest.mark.parametrize("pattern", EXPENSIVE)
def test_patterns_that_defeat_backtracking_cost_linear_time(pattern):
    costs = []
    for length in (2_000, 4_000):
        moves = stop_patterns([pattern])
        checker = StopChecker((), moves)
        for _ in range(length):
            assert checker.feed("a").stopped is None
        costs.append(moves.steps)
        assert checker.feed("b").stopped == pattern
    assert costs[0] <= 2_000 * MAX_STATES and costs[1] <= 2 * costs[0] + MAX_STATES


def test_what_is_remembered_is_bounded():
    moves = stop_patterns(["(?:[^z]?){200}z"])
    checker = StopChecker((), moves)
    for code in range(0x4E00, 0x4E00 + 1_500):
        checker.feed(chr(code))
        nodes = moves._nodes.values()
        kept = sum(1 + len(move.node.groups) for node in nodes for move in node.moves.values())
        assert kept + len(moves._taking) <= (1 << 14) + 2 + MAX_STATES
    assert checker.feed("z").stopped is not None
