"""Whatever the cache, the chunks, the memory and the hooks do, the answer is the reference's."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_model import Session, ask, limits

from anychip.request import FinishReason
from anychip.schedule.scheduler import RequestRefused, SchedulerHooks


def workload(seed: int) -> list:
    """Requests that share beginnings, some sampled, some that may end early."""
    rng = random.Random(seed)
    stems = [[rng.randrange(1, 40) for _ in range(30)] for _ in range(3)]
    requests = []
    for number in range(12):
        stem = rng.choice(stems)
        prompt = stem[: rng.randrange(1, 31)] + [
            rng.randrange(1, 40) for _ in range(rng.randrange(5))
        ]
        requests.append(
            ask(
                f"r{number}",
                prompt,
                rng.choice([1, 2, 9, 25, 50, 70]),
                temperature=rng.choice([0.0, 0.9]),
                seed=number // 2,
                draw=number % 2,
                ignore_eos=rng.random() < 0.5,
                namespace=rng.choice(["", "other"]),
            )
        )
    return requests


@pytest.mark.parametrize("radix", [True, False])
@pytest.mark.parametrize("chunk", [1, 16, 512])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("positions", [112, 160, 2048])
@pytest.mark.parametrize("every", [0, 1, 3])
def test_every_setting_gives_the_reference_answer(radix, chunk, page_size, positions, every):
    room = limits(
        pages=positions // page_size,
        page_size=page_size,
        chunk=chunk,
        step_tokens=max(chunk, 8),
    )
    hooks = SchedulerHooks(force_retract_every=every)
    session = Session(room, radix=radix, hooks=hooks)
    for request in workload(positions + page_size):
        session.add(request)
        session.step()
    session.drain()
    for name in session.requests:
        session.assert_right(name)
    session.assert_nothing_held()


def test_a_forced_miss_changes_nothing_but_the_work():
    sessions = []
    for miss in (False, True):
        session = Session(limits(page_size=4), hooks=SchedulerHooks(force_miss=miss))
        for request in workload(5):
            session.add(request)
        session.drain()
        for name in session.requests:
            session.assert_right(name)
        sessions.append(session)
    hit, miss = (s.scheduler.stats() for s in sessions)
    assert hit.cached_tokens > 0
    assert miss.cached_tokens == 0


def test_scarce_memory_really_retracts_and_evicts():
    session = Session(limits(pages=64, page_size=2))
    for number in range(8):
        session.add(ask(str(number), [number + 1, 2, 3, 4, 5], 90))
    session.drain()
    stats = session.scheduler.stats()
    assert stats.retractions > 0
    assert stats.evicted_pages > 0
    for name in session.requests:
        session.assert_right(name)


OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 2**16)),
    st.tuples(st.just("abort"), st.integers(0, 2**16)),
    st.tuples(st.just("late abort"), st.integers(0, 2**16)),
    st.tuples(st.just("fail"), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(1, 6)),
)


def random_request(name: str, seed: int, with_priority: bool):
    rng = random.Random(seed)
    length = rng.choice([1, 2, 5, 9, 20, 33])
    prompt = [1, 2, 3, 4, 5, 6, 7, 8][: rng.randrange(9)]
    prompt += [rng.randrange(1, 4) for _ in range(max(0, length - len(prompt)))]
    return ask(
        name,
        prompt,
        rng.choice([1, 2, 7, 40, 60]),
        temperature=rng.choice([0.0, 1.0]),
        seed=seed,
        ignore_eos=rng.random() < 0.7,
        namespace=rng.choice(["", "", "b"]),
        priority=rng.choice([-20, 0, 0, 15]) if with_priority else 0,
    )


def run_operation(session: Session, operation: tuple[str, int], gone: set[str]) -> None:
    kind, number = operation
    names = sorted(session.requests)
    if kind == "add":
        try:
            session.add(random_request(f"r{len(names)}", number, session.takes_priorities))
        except RequestRefused:
            return
    elif kind == "abort" and names:
        name = names[number % len(names)]
        if session.scheduler.abort(name):
            gone.add(name)
        assert session.scheduler.check() == []
    elif kind in ("late abort", "fail"):
        between_plan_and_commit(session, kind, number, gone)
    elif kind == "step":
        for _ in range(number):
            session.step()


def between_plan_and_commit(session: Session, kind: str, number: int, gone: set[str]) -> None:
    session.take_off(ahead=number % 2 == 1)
    if not session.flights:
        return
    plan, result = session.flights.popleft()
    if kind == "fail":
        gone.update(session.fail(plan, result))
        return
    names = sorted(session.requests)
    name = names[number % len(names)]
    before = list(session.tokens[name])
    if session.scheduler.abort(name):
        gone.add(name)
        session.land(plan, result)
        assert session.tokens[name] == before
        assert session.finish(name) is FinishReason.ABORT
    else:
        session.land(plan, result)


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    operations=st.lists(OPERATIONS, min_size=10, max_size=60),
    page_size=st.sampled_from([1, 2, 4, 16]),
    positions=st.sampled_from([32, 48, 96, 512]),
    chunk=st.sampled_from([1, 3, 16, 64]),
    running=st.sampled_from([1, 2, 8]),
    radix=st.booleans(),
    every=st.sampled_from([0, 0, 2, 5]),
    headroom=st.sampled_from([1, 1, 32]),
    policy=st.sampled_from(["fcfs", "lpm", "priority", "shortest-prefill-first"]),
    overlap=st.sampled_from(["", "eager", "lazy"]),
)
def test_any_order_of_events(
    operations, page_size, positions, chunk, running, radix, every, headroom, policy, overlap
):
    session = Session(
        limits(
            pages=positions // page_size,
            page_size=page_size,
            context_length=64,
            chunk=chunk,
            step_tokens=max(chunk, 4),
            max_running=running,
        ),
        radix=radix,
        policy=policy,
        overlap=overlap,
        headroom_tokens=headroom,
        conservativeness=headroom / 32,  # the lower, the more retractions
        hooks=SchedulerHooks(force_retract_every=every),
    )
    gone: set[str] = set()
    for operation in operations:
        run_operation(session, operation, gone)
    session.drain()
    session.assert_nothing_held()
    for name, request in session.requests.items():
        most = len(request.prompt) + request.params.max_tokens - 1
        if session.finish(name) is FinishReason.ERROR and name not in gone:
            assert most > positions // page_size * page_size
        elif name not in gone:
            session.assert_right(name)
    assert session.scheduler.flush_cache()
    assert session.scheduler.stats().pages_free == positions // page_size
