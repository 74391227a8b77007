"""A real trace in virtual time: with room for all, what is found is exactly what can be found."""

from __future__ import annotations

import random
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prefixes.replay import Replay, StepCost
from prefixes.trace import Prompt, best_hits, moved, shrunk

from anychip.bench.load.mooncake import BlockCall, read_blocks
from anychip.bench.load.trace_file import TraceError
from anychip.plan import CacheLimits
from anychip.schedule.eviction import EVICTION_POLICIES
from anychip.schedule.options import SchedulerOptions

TRACE = Path(__file__).parent / "traces" / "mooncake_conversation_300.jsonl"


@pytest.fixture(scope="module")
def calls() -> list[BlockCall]:
    return read_blocks(TRACE)


def replay(prompts, page_size, *, pages=None, step_tokens=512, check_every=97, **options):
    longest = max(prompt.length + prompt.output for prompt in prompts)
    most = sum(-(-(prompt.length + prompt.output) // page_size) for prompt in prompts)
    limits = CacheLimits(
        pages=pages or most,
        page_size=page_size,
        context_length=longest + 1,
        max_running=64,
        step_tokens=step_tokens,
        chunk=step_tokens,
    )
    run = Replay(limits, SchedulerOptions(**options), StepCost(), check_every=check_every)
    outcome = run.run(prompts)
    assert outcome.prompt_tokens == sum(prompt.length for prompt in prompts)
    return outcome


# Blocks of 512 tokens become blocks of 32 or 64.
@pytest.mark.parametrize(("divisor", "page_size"), [(16, 1), (16, 16), (16, 32), (8, 64)])
def test_with_room_for_all_every_hit_that_the_ids_allow_is_found(calls, divisor, page_size):
    prompts = shrunk(calls, divisor)
    outcome = replay(prompts, page_size, check_every=0 if page_size == 1 else 97)
    assert (outcome.evicted_pages, outcome.retractions) == (0, 0)
    assert outcome.cached_tokens == best_hits(prompts, page_size) > 0.08 * outcome.prompt_tokens


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_all_policies_are_equal_while_nothing_is_evicted(calls, policy):
    prompts = shrunk(calls[:60], 16)
    outcome = replay(prompts, 16, eviction=policy)
    assert outcome.cached_tokens == best_hits(prompts, 16)


def test_it_is_waiting_for_a_prefix_under_way_that_finds_them_all(calls):
    prompts = shrunk(calls, 16)
    with patch("anychip.schedule.admission.WORTH_WAITING_TOKENS", 10**9):
        outcome = replay(prompts, 16)
    assert outcome.cached_tokens < best_hits(prompts, 16)


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_little_room_finds_less_and_the_books_stay_sound(calls, policy):
    prompts = shrunk(calls, 16)
    outcome = replay(prompts, 16, pages=1000, check_every=29, eviction=policy)
    assert outcome.evicted_pages > 0
    assert 0 < outcome.cached_tokens < best_hits(prompts, 16)


def test_blocks_that_moved_find_nothing_of_the_old_ones(calls):
    prompts = shrunk(calls, 16)
    assert best_hits(prompts + moved(prompts, 1), 16) == 2 * best_hits(prompts, 16)


def made_up(seed: int) -> list[Prompt]:
    """Bursts of requests that continue each other's prompts, some word for word the same.

    A last block that is not whole has an id of its own, as in a trace.
    """
    rng = random.Random(seed)
    paths, prompts, at = [()], [], 0.0
    for _ in range(40):
        at += rng.choice([0.0, 0.0, 0.01, 0.3, 5.0])
        path = rng.choice(paths)[: rng.randrange(1, 12)]
        path += tuple(len(paths) * 100 + n for n in range(rng.randrange(0 if path else 1, 6)))
        paths.append(path)
        left = rng.choice([0, 0, 1, 17])
        whole = (*path, 10_000 * left + path[-1]) if left else path
        prompts.append(Prompt(at, 32 * len(path) + left, rng.randrange(1, 40), 32, whole))
    return prompts


@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])
@given(seed=st.integers(0, 2**20), step_tokens=st.sampled_from([7, 32, 100, 1000]))
def test_the_same_for_made_up_traces(seed, step_tokens):
    prompts = made_up(seed)
    outcome = replay(prompts, 32, step_tokens=step_tokens)
    assert outcome.cached_tokens == best_hits(prompts, 32)


def prompt(length: int, *blocks: int) -> Prompt:
    return Prompt(0.0, length, 1, 4, blocks)


def test_the_best_hits_by_hand():
    first, longer, other = prompt(8, 1, 2), prompt(12, 1, 2, 3), prompt(8, 9, 2)
    assert best_hits([first, first], 4) == 4
    assert best_hits([first, first], 1) == 7
    assert best_hits([first, longer], 4) == 8
    assert best_hits([first, other], 4) == 0
    assert best_hits([longer, first, longer], 2) == 6 + 10


def test_a_trace_that_is_none_is_refused(tmp_path, calls):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}')
    with pytest.raises(TraceError, match="line 1: 600 tokens in 1 blocks"):
        read_blocks(path)
    path.write_text("{}")
    with pytest.raises(TraceError, match="not a trace of blocks"):
        read_blocks(path)
    path.write_text("")
    with pytest.raises(TraceError, match="no request"):
        read_blocks(path)
    with pytest.raises(TraceError, match="divisor of 512"):
        shrunk(calls, 7)
