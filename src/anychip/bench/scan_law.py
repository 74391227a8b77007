"""The universal scalability law: how throughput grows with the number of requests at once.

Gunther's X(n) = rate n / (1 + contention (n - 1) + coherency n (n - 1)). Contention is the share of
the work that only one request can have done at a time; coherency what every pair of requests costs
by having to agree. With coherency there is a peak, behind which more requests get less done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np

LEAST_LEVELS = 3
"""As many as the law has parameters."""
_NOTHING = 1e-9
"""Smaller contention and coherency are what arithmetic leaves over."""


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """A fit. rate: throughput of one request alone. error: the largest relative distance between
    the fit and a level; 0 says nothing where there are only `LEAST_LEVELS` levels."""

    rate: float
    contention: float
    coherency: float
    error: float
    levels: int

    def at(self, n: float) -> float:
        """Throughput with n requests at once."""
        slowed = 1 + self.contention * (n - 1) + self.coherency * n * (n - 1)
        return self.rate * n / slowed

    @property
    def peak(self) -> float | None:
        """Requests at once that get most done; None where more always get more done."""
        if self.coherency <= 0:
            return None
        return max(1.0, math.sqrt(max(0.0, 1 - self.contention) / self.coherency))

    @property
    def ceiling(self) -> float | None:
        """The most throughput that any number gets, by the law; None where there is no limit."""
        if self.peak is not None:
            return self.at(self.peak)
        return self.rate / self.contention if self.contention > 0 else None


def fit(levels: Sequence[tuple[int, float]]) -> Law:
    """Fit to pairs (requests at once, throughput). ValueError for fewer than `LEAST_LEVELS`.

    n / X(n) = (1 + contention (n - 1) + coherency n (n - 1)) / rate is linear in three unknowns.
    Least squares with each level's distance taken relative to it; unknowns that would come out
    negative are left out, which has no meaning in the law.
    """
    if len(levels) < LEAST_LEVELS:
        raise ValueError(f"the law needs {LEAST_LEVELS} levels, there are {len(levels)}")
    n, x = np.array(levels, np.float64).T
    if (x <= 0).any():
        raise ValueError("the law needs a throughput above 0 at each level")
    # Dividing each equation by n / X makes its right side 1, and its residual a relative one.
    columns = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1) * (x / n)[:, None]
    best, least = (1.0, 0.0, 0.0), math.inf
    for kept in product((True, False), repeat=2):
        chosen = np.array((True, *kept))
        found, *_ = np.linalg.lstsq(columns[:, chosen], np.ones_like(n), rcond=None)
        whole = np.zeros(3)
        whole[chosen] = found
        residual = float(((columns @ whole - 1) ** 2).sum())
        if (whole >= 0).all() and whole[0] > 0 and residual < least:
            best, least = (float(whole[0]), float(whole[1]), float(whole[2])), residual
    law = Law(
        rate=1 / best[0],
        contention=_or_nothing(best[1] / best[0]),
        coherency=_or_nothing(best[2] / best[0]),
        error=0.0,
        levels=len(levels),
    )
    error = max(abs(law.at(count) / value - 1) for count, value in levels)
    return msgspec.structs.replace(law, error=error)


def _or_nothing(value: float) -> float:
    return value if value > _NOTHING else 0.0
