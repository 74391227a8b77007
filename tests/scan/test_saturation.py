"""What saturates is read off evidence: made-up evidence for each cause, and for none."""

from __future__ import annotations

import made_evidence as made
import pytest

from anychip.bench.facts import facts_of
from anychip.bench.saturation import CAUSES, Facts, saturated
from anychip.engine.evidence import FAULT, HANDOVER, IO, LOCK, NATIVE, PYTHON

WAITS_FOR_LOCK = {(LOCK, "chip"): 0.5, (NATIVE, "chip"): 0.4, (PYTHON, "runner"): 0.1}
BUSY_CHIP = {(NATIVE, "chip"): 0.9, (PYTHON, "runner"): 0.1}
STARVED = {(HANDOVER, "engine"): 0.6, (NATIVE, "chip"): 0.3, (PYTHON, "runner"): 0.1}
PLANS = {(PYTHON, "schedule"): 0.7, (PYTHON, "engine"): 0.2, (IO, "engine"): 0.1}
FULL = {"running": made.MAX_RUNNING, "queued": 5}
OUT_OF_PAGES = {"queued": 5, "pages_free": 2, "pages_held": 98}

CASES = {
    "load generator": ([made.look()], made.polls(), {"load_core": 0.95}),
    "lock": ([made.look(WAITS_FOR_LOCK)], made.polls(), {}),
    "memory paging": ([made.look({(FAULT, "chip"): 0.4, (NATIVE, "chip"): 0.6})], made.polls(), {}),
    "KV memory": ([made.look(BUSY_CHIP)], made.polls(**OUT_OF_PAGES), {}),
    "queue limit": ([made.look(BUSY_CHIP)], made.polls(**FULL), {}),
    "other programs": ([made.look(busy=1.0, queued=0.5)], made.polls(), {}),
    "chip": ([made.look(BUSY_CHIP)], made.polls(), {}),
    "tokenizer": ([made.look(http={(NATIVE, "text"): 0.9, (IO, "server"): 0.1})], (), {}),
    "HTTP process": ([made.look(http={(PYTHON, "server"): 0.9, (IO, "server"): 0.1})], (), {}),
    "scheduler": ([made.look(STARVED, PLANS)], made.polls(), {}),
    "interpreter": ([made.look(interpreter_wait=0.4)], made.polls(), {}),
}


def causes(looks, polls, given):
    facts = facts_of(looks, polls, max_running=made.MAX_RUNNING, **given)
    return [found.name for found in saturated(facts)]


def test_each_cause_has_a_case():
    assert set(CASES) == {cause.name for cause in CAUSES}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_is_named(name):
    assert causes(*CASES[name])[0] == name


def test_a_healthy_server_has_none():
    assert causes([made.look()], made.polls(), {"load_core": 0.1}) == []
    assert causes([], (), {}) == []


def test_a_lock_is_named_with_its_place():
    facts = facts_of([made.look(), made.look(WAITS_FOR_LOCK)])
    (found,) = saturated(facts)
    assert found.share == 0.25
    assert "25% of the time" in found.text and "plugin/memory.py:12 (allocate)" in found.text


def test_a_chip_without_telemetry_is_judged_by_its_thread():
    by_thread = facts_of([made.look(BUSY_CHIP)], made.polls())
    assert by_thread.chip == 0.9 and by_thread.chip_source == "the time of its thread in operators"
    told = facts_of([made.look(BUSY_CHIP)], made.polls(utilization=0.2))
    assert told.chip == pytest.approx(0.2) and told.chip_source == "its telemetry"


def test_retractions_are_kv_memory():
    read = made.polls(retractions=3, first={"retractions": 0})
    assert causes([made.look()], read, {}) == ["KV memory"]
    assert causes([made.look()], made.polls(retractions=3), {}) == []


@pytest.mark.parametrize(
    ("waiting", "name"),
    [
        ({"pages": 2, "slots": 0}, ["KV memory"]),
        ({"pages": 0, "slots": 2}, ["queue limit"]),
        ({"pages": 0, "slots": 0, "tokens": 5}, []),
    ],
)
def test_the_engines_word_for_a_wait_goes_before_what_the_books_look_like(waiting, name):
    read = made.polls(waiting=waiting, queued=5, pages_free=2)
    assert causes([made.look()], read, {}) == name


def test_refused_calls_are_a_queue_limit():
    assert causes([made.look()], made.polls(), {"refused": 0.6}) == ["queue limit"]


def test_steps_without_overlap_are_the_loops():
    inline = {(PYTHON, "schedule"): 0.5, (NATIVE, "chip"): 0.5}
    assert causes([made.look(None, inline)], made.polls(), {}) == ["scheduler"]
    busy = {(PYTHON, "schedule"): 0.1, (NATIVE, "chip"): 0.9}
    assert causes([made.look(None, busy)], made.polls(), {}) == ["chip"]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_the_table_is_obeyed_at_its_limits(cause):
    assert [f.name for f in saturated(Facts(**{cause.figure: cause.least}))] == [cause.name]
    assert list(saturated(Facts(**{cause.figure: cause.least - 0.01}))) == []
