from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anychip.text.stop import StopChecker, StopResult

SHORT = st.text(alphabet="ab", max_size=12)


def feed_all(stops, deltas):
    """(emitted, stopped), and every prefix of what was emitted on the way."""
    checker, emitted = StopChecker(stops), ""
    for delta in deltas:
        result = checker.feed(delta)
        emitted += result.text_to_emit
        if result.stopped is not None:
            return emitted, result.stopped
    return emitted + checker.flush(), None


def by_hand(stops, text):
    """The stop that is complete at the earliest character, the longest of those."""
    for end in range(len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            stop = max(done, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(st.lists(SHORT.filter(bool), max_size=4), st.lists(SHORT, max_size=8))
def test_equals_the_definition_however_the_text_is_cut(stops, deltas):
    assert feed_all(stops, deltas) == by_hand(stops, "".join(deltas))


def test_stop_across_deltas_never_leaks():
    checker = StopChecker(["\nUser:"])
    assert [checker.feed(d).text_to_emit for d in ["Hi", "\nUs", "er"]] == ["Hi", "", ""]
    last = checker.feed(": more")
    assert (last.text_to_emit, last.stopped) == ("", "\nUser:")


def test_what_only_began_a_stop_is_released():
    checker = StopChecker(["STOP"])
    assert checker.feed("a ST").text_to_emit == "a "
    assert checker.feed("AB").text_to_emit == "STAB"
    assert checker.feed("ST").text_to_emit == ""
    assert checker.flush() == "ST"
    assert checker.feed("OP") == StopResult("OP")


def test_overlapping_beginning_is_held():
    checker = StopChecker(["aab"])
    assert checker.feed("aaa").text_to_emit == "a"
    assert checker.feed("b").stopped == "aab"


def test_nothing_is_emitted_after_a_stop():
    checker = StopChecker(["x"])
    assert checker.feed("1x2").text_to_emit == "1"
    assert checker.feed("3").text_to_emit == "" and checker.feed("3").stopped == "x"


def test_without_stops_all_passes():
    checker = StopChecker([])
    assert checker.feed("abc").text_to_emit == "abc" and checker.flush() == ""


def test_empty_stop_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopChecker(["a", ""])
