"""The check before any state exists: bounded, killed where it has to be, never taken down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.grammar.check import GrammarCheck
from anychip.grammar.check_frames import CheckSetup
from anychip.grammar.check_process import Checker
from anychip.grammar.errors import GrammarError, NotChecked
from anychip.grammar.limits import KINDS, GrammarLimits
from anychip.request import GrammarSpec

ENDLESS = json.dumps(
    {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{count}}}"} for count in range(1, 20)]}
)
"""Patterns whose intersection takes minutes, and all memory, to work out."""
GOOD = GrammarSpec("json_schema", '{"type": "object"}')


def endless(number=0):
    return GrammarSpec("json_schema", ENDLESS + " " * number)


def long_check(vocabulary):
    return GrammarCheck(vocabulary, GrammarLimits(compile_s=600))


@pytest.fixture(scope="module")
def check(vocabulary):
    found = GrammarCheck(vocabulary)
    found.start()
    yield found
    found.close()


def pid_of(check):
    return check._child.pid


def test_a_good_grammar_passes_and_a_bad_one_is_told_with_its_pointer(check):
    check.check(GOOD)
    bad = {"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}
    with pytest.raises(GrammarError, match="oneOf") as caught:
        check.check(GrammarSpec("json_schema", json.dumps(bad)))
    assert caught.value.pointer == "/properties/a/oneOf"


def test_a_complaint_of_the_library_has_a_pointer_too(check):
    bad = {
        "items": {"type": "object", "minProperties": 1, "properties": {"a": {}}},
        "type": "array",
    }
    with pytest.raises(GrammarError, match="min/maxProperties") as caught:
        check.check(GrammarSpec("json_schema", json.dumps(bad)))
    assert caught.value.pointer == "/items/minProperties"


def test_what_was_checked_is_remembered(check):
    check.check(GOOD)
    os.kill(pid_of(check), signal.SIGSTOP)
    try:
        check.check(GOOD)  # needs no process
    finally:
        os.kill(pid_of(check), signal.SIGCONT)


SIZES = {
    "too long": (GrammarSpec("regex", "a" * (256 << 10) + "a"), "at most 262144"),
    "nul": (GrammarSpec("regex", "a\0"), "NUL"),
    "surrogate": (GrammarSpec("regex", "\ud800"), "surrogate"),
    "empty": (GrammarSpec("ebnf", "  "), "is empty"),
    "kind": (GrammarSpec("bnf", "x"), "no kind of grammar"),
    "nested": (GrammarSpec("json_schema", "[" * 1000), "nested deeper"),
    "many choices": (GrammarSpec("choice", json.dumps(["a"] * 10_001)), "at most 10000"),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_grammar_past_a_bound_is_refused(check, name):
    spec, reason = SIZES[name]
    with pytest.raises(GrammarError, match=reason):
        check.check(spec)


def test_a_compile_that_takes_too_long_is_ended_and_nothing_else_suffers(vocabulary):
    check = GrammarCheck(vocabulary, GrammarLimits(compile_s=0.3))
    try:
        check.check(GOOD)
        first = pid_of(check)
        with pytest.raises(GrammarError, match=r"longer than 0\.3 s"):
            check.check(endless())
        check.check(GrammarSpec("regex", "a+"))
        assert pid_of(check) != first
        second = pid_of(check)
        with pytest.raises(GrammarError, match=r"longer than 0\.3 s"):
            check.check(endless())  # remembered: no process is ended for it twice
        assert pid_of(check) == second
    finally:
        check.close()


def test_a_compile_that_takes_too_much_memory_is_ended(vocabulary):
    limits = GrammarLimits(compile_s=120, compile_bytes=24 << 20, text_bytes=4 << 20)
    check = GrammarCheck(vocabulary, limits)
    large = json.dumps({"enum": [f"value {number}" for number in range(100_000)]})
    try:
        with pytest.raises(GrammarError, match="needs more than 24 MiB"):
            check.check(GrammarSpec("json_schema", large))
        check.check(GOOD)
    finally:
        check.close()


def test_a_cancelled_check_ends_its_compile_at_once(vocabulary):
    check = long_check(vocabulary)

    async def scenario():
        await check.check_async(GOOD)
        first = pid_of(check)
        running = asyncio.create_task(check.check_async(endless()))
        waiting = asyncio.create_task(check.check_async(endless(1)))
        other = asyncio.create_task(check.check_async(GrammarSpec("regex", "b+")))
        while check._running is None:
            await asyncio.sleep(0.01)
        waiting.cancel()
        running.cancel()
        found = await asyncio.gather(running, waiting, other, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert isinstance(found[1], asyncio.CancelledError)
        assert found[2] is None  # the one behind them was answered
        assert pid_of(check) != first

    try:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    finally:
        check.close()


def compiling(check):
    """A thread in which a check is under way that never ends, and what it will raise."""
    told = []

    def work():
        try:
            check.check(endless())
        except GrammarError as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while check._running is None:
        thread.join(0.01)
    return thread, told


def test_closing_ends_what_is_being_compiled(vocabulary):
    check = long_check(vocabulary)
    thread, told = compiling(check)
    pid = pid_of(check)
    check.close()
    thread.join(30)
    assert isinstance(told[0], NotChecked) and "killed" in told[0].text
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended_while_it_compiles_says_nothing_of_the_grammar(check, number):
    check.check(GrammarSpec("regex", f"c{int(number)}"))
    thread, told = compiling(check)
    os.kill(pid_of(check), number)
    thread.join(30)
    assert isinstance(told[0], NotChecked) and "send it again" in told[0].text
    assert check._remembered(endless()) is None
    check.check(GrammarSpec("regex", f"d{int(number)}"))


def test_a_killed_process_says_nothing_of_the_grammar(check):
    check.check(GrammarSpec("regex", "c"))
    os.kill(pid_of(check), signal.SIGKILL)
    for number in range(3):  # it may have been noticed before it was used
        try:
            check.check(GrammarSpec("regex", "d"))
            break
        except GrammarError as error:
            assert "send it again" in error.text and number < 2


@pytest.fixture(scope="module")
def checker(vocabulary, backend):
    """What the process does, without the process: whatever it raised would have ended it."""
    return Checker(
        CheckSetup(
            vocabulary.pieces,
            vocabulary.special,
            vocabulary.eos_ids,
            vocabulary.size,
            GrammarLimits(),
            backend,
        )
    )


SCRAPS = [
    *"{}[]\"':,|()*+?.\\/^$#%&~@<>=-!ab1 \n\ud7ff",
    *("{2,3}", "::=", "root", "start:", "%json", "%ignore", "\\u0000", "\\x", "(?=", "(?i)", "[^"),
    *('{"type":', '"object"', '"properties":', '"$ref":', '"#"', '"anyOf":', '"pattern":'),
    *('"structures":', '"triggers":', '"format":', '"tag"', "<eos>", "é", "🙂", "[a-z]"),
]
soup = st.lists(st.sampled_from(SCRAPS) | st.text(max_size=3), max_size=25).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "format"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), soup | values.map(json.dumps))
def test_no_text_takes_the_process_down(checker, kind, text):
    reply = checker.answer(GrammarSpec(kind, text))
    assert reply.error is None or (reply.error and len(reply.error) < 2000)
