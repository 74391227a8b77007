"""Evicted pages in host memory: the same answers, hits by tier, and sound books."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prefixes.replay import Replay, StepCost
from prefixes.trace import best_hits, shrunk
from table_model import Session, ask, limits
from test_schedule_answers import OPERATIONS, run_operation
from test_schedule_page_sizes import workload

from anychip.bench.load.mooncake import read_blocks
from anychip.plan import CacheLimits
from anychip.request import FinishReason
from anychip.schedule.eviction import EVICTION_POLICIES
from anychip.schedule.host_tier import HostTier
from anychip.schedule.options import SchedulerOptions
from anychip.schedule.scheduler import SchedulerHooks

TRACE = Path(__file__).parent / "traces" / "mooncake_conversation_300.jsonl"


def run_one(session: Session, name: str, prompt: list[int], max_tokens: int = 1) -> int:
    """Answer one request alone; return the tokens that were found."""
    session.add(ask(name, prompt, max_tokens))
    session.drain()
    session.assert_right(name)
    return session.last[name].cached_tokens


def moves(session: Session) -> list[tuple[int, int, bool]]:
    return [(m.page, m.slot, m.to_host) for plan in session.plans for m in plan.moves]


def test_an_evicted_prefix_comes_back_from_host_memory():
    session = Session(limits(pages=6, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 21)
    saved = moves(session)
    assert [to_host for _, _, to_host in saved] == [True] * 4
    assert run_one(session, "again", [1] * 17) == 16
    stats = session.scheduler.stats()
    assert (stats.cached_tokens_device, stats.cached_tokens_host) == (0, 16)
    loaded = [(page, slot) for page, slot, to_host in moves(session) if not to_host]
    assert sorted(slot for _, slot in loaded) == sorted(slot for _, slot, _ in saved)
    assert (stats.host_saved_pages, stats.host_loaded_pages) == (stats.evicted_pages, 4)


def test_a_prefix_may_lie_in_both_tiers():
    session = Session(limits(pages=8, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 25)
    run_one(session, "b", [2] * 17)
    assert run_one(session, "again", [1] * 25) == 24
    stats = session.scheduler.stats()
    assert stats.cached_tokens_device > 0
    assert stats.cached_tokens_host > 0


def test_a_prefix_that_leaves_the_path_inside_host_memory_is_split_there():
    session = Session(limits(pages=6, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 21)
    run_one(session, "b", [2] * 21)
    assert run_one(session, "fork", [1] * 8 + [3] * 9) == 8
    assert run_one(session, "again", [1] * 21) == 20


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_host_memory_evicts_by_the_same_policy(policy):
    """Three prompts of two pages, slots for two: the one used twice goes last, or as the oldest."""
    session = Session(limits(pages=2, page_size=4, host_slots=4), eviction=policy)
    run_one(session, "a", [1] * 8)
    run_one(session, "a2", [1] * 8)
    run_one(session, "b", [2] * 8)
    run_one(session, "c", [3] * 8)
    run_one(session, "d", [4] * 8)
    assert run_one(session, "again", [1] * 8) == (4 if policy in ("lfu", "slru") else 0)


def test_pages_computed_again_take_the_place_of_their_copies():
    """A forced miss computes what host memory has: the tree keeps the new pages alone."""
    session = Session(limits(pages=6, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 21)
    free = session.scheduler.stats().host_slots_free
    session.scheduler._state.store._force_miss = True
    assert run_one(session, "again", [1] * 17) == 0
    stats = session.scheduler.stats()
    assert stats.host_loaded_pages == 0
    assert stats.host_slots_free == free + 4 - (stats.host_saved_pages - 4)


def test_more_is_evicted_at_once_than_host_memory_holds():
    session = Session(limits(pages=12, page_size=4, host_slots=3))
    run_one(session, "a", [1] * 45)
    run_one(session, "b", [2] * 45)
    stats = session.scheduler.stats()
    assert stats.host_slots_free == 0
    assert stats.evicted_pages > stats.host_slots_total
    for plan in session.plans:
        slots = [move.slot for move in plan.moves]
        assert len(slots) == len(set(slots)), "a copy that nobody reads"


def test_a_slot_may_be_written_again_behind_its_load():
    tier = HostTier(3)
    tier.save([10, 11], tier.slots.take(2))
    tier.load([1], [12])
    tier.save([13], tier.slots.take(1))
    tier.save([14], [2])
    moves = [(move.page, move.slot, move.to_host) for move in tier.take_moves()]
    assert moves == [(10, 1, True), (12, 1, False), (13, 1, True), (14, 2, True)]
    assert (tier.saved, tier.loaded, tier.take_moves()) == (3, 1, ())


def test_a_flush_empties_both_tiers():
    session = Session(limits(pages=6, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 21)
    assert session.scheduler.flush_cache()
    stats = session.scheduler.stats()
    assert (stats.pages_free, stats.host_slots_free) == (6, 10)
    assert session.scheduler.check() == []
    assert run_one(session, "again", [1] * 17) == 0


def test_nothing_is_planned_behind_a_step_with_moves():
    session = Session(limits(pages=10, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    session.add(ask("b", [2] * 33, 8))
    plan = session.plan()
    assert plan.moves
    assert session.scheduler.plan_ahead() is None
    session.commit(plan)
    session.drain()
    session.assert_right("b")


def test_no_host_memory_no_moves():
    session = Session(limits(pages=6, page_size=4))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 21)
    stats = session.scheduler.stats()
    assert stats.evicted_pages > 0
    assert (moves(session), stats.host_slots_total) == ([], 0)


@pytest.mark.parametrize("done", [0, 1, 2, 99])
def test_a_failed_step_with_moves_leaves_nothing_to_trust(done):
    """So many of its moves were done, of the others nobody knows: nothing of it is ever read."""
    session = Session(limits(pages=10, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 37)
    session.add(ask("other", [5] * 2, 12))
    session.step()
    session.add(ask("again", [1] * 17, 1))
    plan = session.plan()
    assert len(plan.moves) > 1
    for move in plan.moves[done:]:
        spoiled, place = (
            (session.runner.host, move.slot) if move.to_host else (session.runner.memory, move.page)
        )
        spoiled[place] = [None] * 4
    session.take(session.scheduler.fail(plan, "the chip said no"))
    assert session.scheduler.check() == []
    assert session.finish("again") is FinishReason.ERROR
    stats = session.scheduler.stats()
    assert (stats.host_slots_free, stats.pages_cached) == (10, 0)
    assert run_one(session, "once more", [1] * 17) == 0
    assert run_one(session, "and b", [2] * 37) == 0


def test_who_is_not_in_a_failed_step_with_moves_starts_anew():
    """Two prefill; a step with room for one of them fails, and the other one's cache is gone."""
    session = Session(limits(pages=40, page_size=4, step_tokens=16, chunk=8, host_slots=10))
    session.add(ask("p", [3] * 40, 6))
    session.add(ask("q", [4] * 40, 6))
    session.step()
    state = session.scheduler._state
    assert {name: s.computed for name, s in state.prefilling.items()} == {"p": 8, "q": 8}
    state.limits = msgspec.structs.replace(state.limits, step_tokens=8)
    state.store.tier.save([1], [1])
    plan = session.plan()
    assert plan.moves
    assert len(plan.rows) == 1
    session.take(session.scheduler.fail(plan, "the chip said no"))
    assert session.scheduler.check() == []
    session.drain()
    assert session.finish("p") is FinishReason.ERROR
    session.assert_right("q")
    assert session.last["q"].retractions == 1


@pytest.mark.parametrize("size", [1, 2, 16, 64, 128])
@pytest.mark.parametrize("host", [1, 700])
@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_the_answer_is_the_same_with_and_without(size, host, policy):
    room = limits(
        pages=768 // size,
        page_size=size,
        context_length=600,
        max_running=6,
        step_tokens=160,
        chunk=96,
        host_slots=host,
    )
    hooks = SchedulerHooks(force_retract_every=4 if size == 16 else 0)
    session = Session(room, eviction=policy, hooks=hooks)
    requests = workload(5, priorities=policy == "priority")
    for number, request in enumerate([*requests, *requests]):
        session.add(msgspec.structs.replace(request, id=str(number)))
        session.step()
        session.step()
    session.drain()
    for name in session.requests:
        session.assert_right(name)
    stats = session.scheduler.stats()
    assert stats.host_saved_pages > 0
    assert stats.host_loaded_pages > 0 or host == 1


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    operations=st.lists(OPERATIONS, min_size=10, max_size=60),
    page_size=st.sampled_from([1, 2, 4, 16]),
    positions=st.sampled_from([32, 48, 96]),
    host=st.sampled_from([1, 3, 8, 300]),
    running=st.sampled_from([1, 2, 8]),
    every=st.sampled_from([0, 0, 2, 5]),
    policy=st.sampled_from(["lru", "lfu", "slru"]),
    worth_waiting=st.sampled_from([32, 1000]),
    overlap=st.sampled_from(["", "eager", "lazy"]),
)
def test_any_order_of_events(
    operations, page_size, positions, host, running, every, policy, worth_waiting, overlap
):
    room = limits(
        pages=positions // page_size,
        page_size=page_size,
        context_length=64,
        chunk=16,
        step_tokens=16,
        max_running=running,
        host_slots=host,
    )
    hooks = SchedulerHooks(force_retract_every=every)
    session, gone = (
        Session(room, hooks=hooks, eviction=policy, headroom_tokens=1, overlap=overlap),
        set(),
    )
    with patch("anychip.schedule.admission.WORTH_WAITING_TOKENS", worth_waiting):
        for operation in operations:
            run_operation(session, operation, gone)
        session.drain()
    session.assert_nothing_held()
    for name in session.requests:
        if name not in gone and session.finish(name) is not FinishReason.ERROR:
            session.assert_right(name)
    assert session.scheduler.flush_cache()
    stats = session.scheduler.stats()
    assert (stats.pages_free, stats.host_slots_free) == (positions // page_size, host)


@pytest.mark.parametrize("policy", ["lru", "lfu", "slru"])
def test_a_real_trace_finds_everything_where_host_memory_has_the_rest_of_the_room(policy):
    prompts = shrunk(read_blocks(TRACE), 16)
    room = CacheLimits(
        pages=1000,
        page_size=16,
        context_length=2**20,
        max_running=64,
        step_tokens=512,
        chunk=512,
        host_slots=20_000,
    )
    replay = Replay(room, SchedulerOptions(eviction=policy), StepCost(), check_every=97)
    outcome = replay.run(prompts)
    stats = replay.scheduler.stats()
    assert outcome.cached_tokens == best_hits(prompts, 16)
    assert 0 < stats.cached_tokens_host < stats.cached_tokens
    assert stats.evicted_pages == stats.host_saved_pages


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda tree: tree.tier.slots.take(1), "is in 0 places"),
        (lambda tree: tree.tier.slots.give_back([a_copy(tree).slots[0]]), "is in 2 places"),
        (lambda tree: a_copy(tree).slots.append(99), "tokens"),
        (lambda tree: a_copy(tree).pages.append(1), "in the cache and in host memory"),
        (lambda tree: setattr(a_copy(tree), "lock", 1), "held between steps"),
        (lambda tree: tree.host_leaves.forget(lambda node: True), "in host memory would never"),
        (lambda tree: setattr(a_copy(tree), "device_children", 3), "it counts 3"),
        (lambda tree: setattr(tree, "locked_slots", 5), "the tree counts 5"),
    ],
)
def test_check_finds_what_is_wrong(spoil, text):
    session = Session(limits(pages=6, page_size=4, host_slots=10))
    run_one(session, "a", [1] * 17)
    run_one(session, "b", [2] * 21)
    spoil(session.scheduler._state.store.tree)
    assert any(text in sentence for sentence in session.scheduler.check())


def a_copy(tree):
    return next(node for node in tree.nodes() if node.slots)
