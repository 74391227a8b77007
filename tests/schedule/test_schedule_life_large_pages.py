"""Random lives, with pages of 8 to 128 tokens, hence few of them: most waiting and retracting."""

from __future__ import annotations

import pytest
from long_run import PATHS, run_lives
from random_life import LARGE_PAGES


@pytest.mark.parametrize(
    ("first_seed", "steps"),
    [(0, 25_000), (1_000, 25_000), pytest.param(10_000, 500_000, marks=pytest.mark.slow)],
)
def test_lives(first_seed, steps):
    seen = run_lives(first_seed, steps, LARGE_PAGES)
    assert all(seen[path] for path in PATHS), seen
