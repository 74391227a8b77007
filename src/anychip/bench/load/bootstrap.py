"""Figures with intervals: what another draw of as many requests would give 19 times out of 20."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DRAWS = 400
CONFIDENCE = 0.95
SLICES = 20
"""Parts of a run's time that a rate is taken over."""
PERCENTILES = (50, 90, 99)
_SEED = 0


class Estimate(msgspec.Struct, frozen=True, array_like=True):
    """A figure and its interval; low and high are the value where there is one request alone."""

    value: float
    low: float
    high: float


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Of seconds. count: values; with several a request (`itl`) more than requests."""

    count: int
    mean: Estimate
    p50: Estimate
    p90: Estimate
    p99: Estimate


def distribution(groups: Sequence[Sequence[float]]) -> Distribution | None:
    """Of the values of all requests, one group each: those of one request are drawn together,
    as they are not independent. None where there is no value."""
    held = [group for group in groups if len(group)]
    if not held:
        return None
    values = np.concatenate([np.asarray(group, np.float64) for group in held])
    owner = np.repeat(np.arange(len(held)), [len(group) for group in held])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    found = _of(values, np.ones(len(values)))
    drawn = np.array([_of(values, weights[owner]) for weights in _weights(len(held))])
    mean, *points = (_estimate(value, column) for value, column in zip(found, drawn.T, strict=True))
    return Distribution(
        count=len(values),
        mean=mean,
        **{f"p{q}": e for q, e in zip(PERCENTILES, points, strict=True)},
    )


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> Estimate | None:
    """Sum of the parts over sum of the wholes, a pair a request; None where the wholes are 0."""
    over, under = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if not under.sum():
        return None
    weights = _weights(len(over))
    sums = weights @ under
    drawn = (weights @ over)[sums > 0] / sums[sums > 0]
    return _estimate(float(over.sum() / under.sum()), drawn)


def rate(times: Sequence[float], amounts: Sequence[float], seconds: float) -> Estimate | None:
    """Amounts a second. The interval is over equal slices of the run's time: it tells how steady
    the rate was, and of an open loop also how unsteady the arrivals were.

    times: when each amount came, from 0 to `seconds`. None where the run took no time.
    """
    if seconds <= 0 or not len(times):
        return None
    sums, _ = np.histogram(times, bins=SLICES, range=(0.0, seconds), weights=amounts)
    drawn = _weights(SLICES) @ sums / seconds
    return _estimate(float(sums.sum() / seconds), drawn)


def _of(ordered: Floats, weights: Floats) -> tuple[float, ...]:
    """Mean and percentiles of ordered values, each counted as often as its weight says."""
    cumulated = np.cumsum(weights)
    total = cumulated[-1]
    points = (_point(ordered, cumulated, q / 100 * (total - 1)) for q in PERCENTILES)
    return (float(ordered @ weights / total), *points)


def _point(ordered: Floats, cumulated: Floats, place: float) -> float:
    """The value at a place of the list written out, between its two neighbours."""
    low = int(place)
    below, above = np.searchsorted(cumulated, [low, min(low + 1, cumulated[-1] - 1)], "right")
    return float(ordered[below] + (place - low) * (ordered[above] - ordered[below]))


def _weights(count: int) -> Floats:
    """How often each of `count` was drawn, a row a draw; the same every time."""
    random = np.random.default_rng(_SEED)
    return random.multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(np.float64)


def _estimate(value: float, drawn: Floats) -> Estimate:
    outside = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, (outside, 100 - outside)) if len(drawn) else (value, value)
    return Estimate(value, min(float(low), value), max(float(high), value))
