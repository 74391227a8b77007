"""Models with recurrent state: what of a prefix is found again, and where snapshots are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice, pairwise
from random import Random

import pytest
from long_run import Failure, run_life
from random_life import SMALL_PAGES, draw_world
from recurrent_mutants import RECURRENT_MUTANTS
from table_model import Session, ask, limits

from anychip.plan import CacheLimits
from anychip.schedule.hooks import SchedulerHooks

PROMPT = [1 + i % 40 for i in range(41)]
LIVES = 60
RARE = dict.fromkeys(
    (
        "a snapshot goes to the head of a split",
        "a snapshot outlives its position",
        "a snapshot found before it is there",
    ),
    26,
)
"""Mistakes that few lives show -> the seed of one, to begin with."""


def room(**values: int) -> CacheLimits:
    """For a model with recurrent state: pages of 4, a snapshot every 16 positions."""
    defaults = {"recurrent": True, "snapshots": 8, "snapshot_every": 16, "max_running": 4}
    return limits(**{**defaults, **values})


def answered(session: Session, name: str, prompt: list[int], most: int = 4) -> int:
    """Run one request alone; what of its prompt came from the cache."""
    session.add(ask(name, prompt, most))
    session.drain()
    session.assert_right(name)
    return session.last[name].cached_tokens


def rows_of(session: Session) -> list[tuple[int, int, int, int]]:
    """Of all rows so far: start, end, where the state comes from and goes to."""
    rows = (row for plan in session.plans for row in plan.rows)
    return [(r.start, r.start + len(r.tokens), r.state_from, r.state_to) for r in rows]


def test_a_prompt_stops_where_snapshots_are_taken_and_the_next_row_goes_on_from_there():
    session = Session(room())
    answered(session, "a", PROMPT, most=1)
    assert rows_of(session) == [(0, 16, 1, 5), (16, 32, 5, 6), (32, 40, 6, 7), (40, 41, 7, 1)]


def test_the_same_prompt_is_found_up_to_its_last_whole_page():
    session = Session(room())
    assert answered(session, "a", PROMPT) == 0
    assert answered(session, "b", PROMPT) == 40
    assert rows_of(session)[-4][:3] == (40, 41, 7)


def test_what_was_produced_is_found_at_every_interval():
    session = Session(room())
    answered(session, "a", PROMPT, most=10)
    turn = [*PROMPT, *session.tokens["a"], 7, 7]
    assert answered(session, "b", turn) == 48


def test_a_prefix_of_two_is_found_by_the_third():
    session = Session(room(snapshot_every=400))
    assert answered(session, "a", [*PROMPT[:25], 45, 45, 45, 45, 45]) == 0
    assert answered(session, "b", [*PROMPT[:25], 46, 46, 46, 46, 46]) == 0
    assert answered(session, "c", [*PROMPT[:25], 47, 47, 47, 47, 47]) == 24


def test_of_two_that_come_together_one_waits_for_a_snapshot_of_the_other():
    session = Session(room(step_tokens=16, chunk=16, snapshot_every=400))
    shared = PROMPT[:40] + PROMPT[:20]
    session.add(ask("a", [*shared, 41, 42, 43]))
    session.step()
    session.add(ask("b", [*shared, 44, 45, 46]))
    session.drain()
    session.assert_right("a")
    session.assert_right("b")
    assert session.last["b"].cached_tokens == 60


def test_where_all_slots_are_in_use_nothing_is_kept_and_nothing_is_wrong():
    session = Session(room(snapshots=1))
    for name in "abc":
        session.add(ask(name, [ord(name) % 50, *PROMPT], 12))
    session.drain()
    for name in "abc":
        session.assert_right(name)
    stats = session.scheduler.stats()
    assert stats.snapshots_free == 0 and stats.snapshots_evicted > 0


def test_the_least_recently_used_snapshot_goes_first():
    session = Session(room(snapshots=2, snapshot_every=400))
    first, second, third = ([n, *PROMPT[:20]] for n in (41, 42, 43))
    answered(session, "a", first)
    answered(session, "b", second)
    assert answered(session, "c", first) == 20
    answered(session, "d", third)
    assert answered(session, "e", first) == 20
    assert answered(session, "f", second) == 0


def test_a_retracted_request_goes_on_from_its_last_snapshot():
    hooks = SchedulerHooks(force_retract_every=9)
    session = Session(room(), hooks=hooks)
    session.add(ask("a", PROMPT, 20))
    session.drain()
    session.assert_right("a")
    assert session.last["a"].retractions > 0
    rows = rows_of(session)
    again = [row for before, row in pairwise(rows) if row[0] < before[0]]
    assert again and all(start >= 40 and source > 4 for start, _, source, _ in again)


def test_without_snapshots_or_without_the_cache_nothing_is_found():
    for session in (Session(room(snapshots=0)), Session(room(), radix=False)):
        answered(session, "a", PROMPT)
        assert answered(session, "b", PROMPT) == 0
        assert {row[2:] for row in rows_of(session)} == {(1, 1)}


def test_flushing_frees_every_snapshot():
    session = Session(room())
    answered(session, "a", PROMPT)
    assert session.scheduler.stats().snapshots_free == 5
    assert session.scheduler.flush_cache()
    assert session.scheduler.stats().snapshots_free == 8


def test_other_models_have_no_slots():
    session = Session(limits())
    answered(session, "a", PROMPT)
    assert answered(session, "b", PROMPT) == 40
    assert {row[2:] for row in rows_of(session)} == {(0, 0)}
    assert session.scheduler.stats().snapshots_total == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"host_slots": 3}, "host memory holds no recurrent state"),
        ({"snapshot_every": 6}, "whole pages"),
        ({"snapshot_every": 0}, "whole pages"),
    ],
)
def test_limits_that_cannot_be_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Session(room(**wrong))


def recurrent_lives(first: int) -> Iterator[int]:
    """Seeds of lives whose model keeps recurrent state and has room for snapshots."""
    for seed in count(first):
        options = draw_world(Random(seed), SMALL_PAGES)
        if options.limits.snapshots and options.options.radix:
            yield seed


@pytest.mark.parametrize("name", RECURRENT_MUTANTS)
def test_a_planted_mistake_is_noticed(name):
    lives = islice(recurrent_lives(RARE.get(name, 0)), LIVES)
    found = (run_life(seed, SMALL_PAGES, RECURRENT_MUTANTS[name]) for seed in lives)
    assert any(isinstance(life, Failure) for life in found)
