"""Random lives, with pages of a few tokens: most sharing, splitting and evicting."""

from __future__ import annotations

import pytest
from long_run import PATHS, run_lives
from random_life import SMALL_PAGES


@pytest.mark.parametrize(
    ("first_seed", "steps"),
    [(0, 25_000), (1_000, 25_000), pytest.param(10_000, 500_000, marks=pytest.mark.slow)],
)
def test_lives(first_seed, steps):
    seen = run_lives(first_seed, steps, SMALL_PAGES)
    assert all(seen[path] for path in PATHS), seen
