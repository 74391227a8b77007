"""What the engine counts for metrics beside the scheduler's books, and how it is sent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

STEP_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0),
)
STEP_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
STEP_TOKENS = (*STEP_ROWS, 2048.0, 4096.0, 8192.0, 16384.0)
GRAMMAR_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
"""Upper bounds of buckets; seconds, rows and tokens of a step, seconds of grammars."""


class Buckets(msgspec.Struct, array_like=True):
    """Observations of a histogram: how many fell in each bucket, the last one open above.

    counts: not cumulative; empty until the first observation. total: their sum.
    """

    counts: list[int] = []
    total: float = 0.0

    def observe(self, value: float, bounds: Sequence[float]) -> None:
        """Count a value. bounds: upper bounds of the buckets, the same at each call."""
        if not self.counts:
            self.counts = [0] * (len(bounds) + 1)
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value
