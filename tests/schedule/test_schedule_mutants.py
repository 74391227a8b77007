"""The random lives can fail: each planted mistake is noticed, and its failure can be shortened."""

from __future__ import annotations

import pytest
from long_run import Failure, fails, main, run_life, run_lives, shrunk
from mutants import MUTANTS, AnswersAfterAbort
from random_life import LARGE_PAGES, SMALL_PAGES

STEPS = 25_000
"""Within so many steps a mistake has to be noticed: half of what the lives do in each run."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_noticed(name):
    with pytest.raises(AssertionError, match=r"seed \d+, step \d+"):
        run_lives(0, STEPS, SMALL_PAGES, MUTANTS[name])


def first_failure(make, page_sizes) -> Failure:
    found = (run_life(seed, page_sizes, make) for seed in range(50))
    return next(life for life in found if isinstance(life, Failure) and len(life.events) < 200)


@pytest.mark.parametrize("page_sizes", [SMALL_PAGES, LARGE_PAGES])
def test_a_failure_names_its_replay_and_shrinks_to_what_it_takes(page_sizes):
    failure = first_failure(AnswersAfterAbort, page_sizes)
    assert f"long_run.py {failure.seed}" in str(failure)
    assert ("--large-pages" in str(failure)) == (page_sizes == LARGE_PAGES)
    again = run_life(failure.seed, page_sizes, AnswersAfterAbort)
    assert (again.events, again.steps) == (failure.events, failure.steps)
    least = shrunk(failure, AnswersAfterAbort)
    assert [event.kind for event in least.events] == ["add", "plan", "abort", "commit"]
    assert fails(least, least.events, AnswersAfterAbort)
    for at in range(len(least.events)):
        fewer = least.events[:at] + least.events[at + 1 :]
        assert fails(least, fewer, AnswersAfterAbort) is None


def test_a_sound_seed_says_so(capsys):
    assert main(["3"]) == 0
    assert "seed 3: nothing wrong" in capsys.readouterr().out
