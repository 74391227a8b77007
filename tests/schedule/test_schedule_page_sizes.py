"""Every page size from 1 to 128: find, share, evict and retract, with the reference's answers."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from table_model import Session, ask, limits

from anychip.schedule.eviction import EVICTION_POLICIES as POLICIES
from anychip.schedule.scheduler import SchedulerHooks

SIZES = [1, 2, 16, 64, 128]
# With room for everything nothing is evicted, and the policies are one.
ROOM = [*((1024, policy) for policy in POLICIES), (8192, "lru")]


def workload(seed: int, *, priorities: bool) -> list:
    """Prompts up to 460 tokens, many with one of two long beginnings, cut anywhere."""
    rng = random.Random(seed)
    stems = [[rng.randrange(1, 40) for _ in range(400)] for _ in range(2)]
    requests = []
    for number in range(14):
        prompt = rng.choice(stems)[: rng.choice([3, 127, 128, 129, 256, 300, 400])]
        prompt += [rng.randrange(1, 40) for _ in range(rng.randrange(60))]
        requests.append(
            ask(
                f"r{number}",
                prompt,
                rng.choice([1, 5, 30, 130]),
                temperature=rng.choice([0.0, 0.9]),
                seed=number // 2,
                ignore_eos=rng.random() < 0.5,
                namespace=rng.choice(["", "", "other"]),
                priority=rng.randrange(-2, 3) if priorities else 0,
            )
        )
    return requests


def session_of(size: int, positions: int, **options: object) -> Session:
    room = limits(
        pages=positions // size,
        page_size=size,
        context_length=600,
        max_running=6,
        step_tokens=160,
        chunk=96,
    )
    return Session(room, **options)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("positions", "policy"), ROOM)
@pytest.mark.parametrize("every", [0, 4])
def test_the_answer_does_not_depend_on_the_page_size(size, positions, policy, every):
    session = session_of(
        size, positions, hooks=SchedulerHooks(force_retract_every=every), eviction=policy
    )
    for request in workload(positions, priorities=policy == "priority"):
        session.add(request)
        session.step()
    session.drain()
    for name in session.requests:
        session.assert_right(name)
    session.assert_nothing_held()
    stats = session.scheduler.stats()
    assert stats.cached_tokens > 0
    assert (stats.evicted_pages > 0) == (positions == 1024)
    assert stats.retractions > 0 or not every
    assert session.scheduler.flush_cache()
    assert session.scheduler.stats().pages_free == positions // size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [1, 63, 64, 127, 128, 129, 257, 400])
def test_a_second_request_finds_every_whole_page_but_the_last_token(size, length):
    session = session_of(size, 4096)
    prompt = [token % 40 + 1 for token in range(length)]
    for name in ("a", "b"):
        session.add(ask(name, prompt, 2))
        session.drain()
        session.assert_right(name)
    assert session.last["b"].cached_tokens == (length - 1) // size * size


@pytest.mark.parametrize("size", SIZES)
def test_pages_computed_twice_are_kept_once(size):
    """Two equal prompts run side by side: the later one changes over to the pages of the first."""
    session = session_of(size, 4096)
    prompt = [token % 40 + 1 for token in range(260)]
    with patch("anychip.schedule.admission.WORTH_WAITING_TOKENS", 1000):
        session.add(ask("a", prompt, 30))
        session.add(ask("b", prompt, 30))
        session.drain()
    session.assert_right("a")
    session.assert_right("b")
    stats = session.scheduler.stats()
    kept = (len(prompt) + 30 - 1) // size
    assert (stats.cached_tokens, stats.pages_cached) == (0, kept)


@pytest.mark.parametrize("size", SIZES)
def test_memory_that_is_short_for_decoding_retracts_and_repeats_nothing(size):
    session = session_of(size, 1024, conservativeness=0.01, headroom_tokens=1)
    for number in range(6):
        session.add(ask(str(number), [number + 1] * (100 + number), 330))
    session.drain()
    for name in session.requests:
        session.assert_right(name)
    stats = session.scheduler.stats()
    assert stats.retractions > 0
    assert stats.evicted_pages > 0
