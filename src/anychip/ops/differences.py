"""Where a result differs from the oracle's: the worst row, and its first differing elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anychip.ops.check import Outcome
from anychip.ops.oracle.arrays import Array, CacheArrays, wide
from anychip.ops.oracle.scaled import read

MOST_SHOWN = 4


@dataclass(frozen=True)
class Difference:
    """One element: where it is, what the oracle has, what was found.

    name: an output, or a half of a cache such as "cache.k". index: one number a dimension.
    """

    name: str
    index: tuple[int, ...]
    expected: float
    found: float

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return f"{self.name}[{place}] is {self.found:.6g}, expected {self.expected:.6g}"


def differences(expected: Outcome, found: Outcome, limit: float) -> tuple[Difference, ...]:
    """The element that is worst of all, then the first ones of its row that differ.

    limit: an element differs where its error is over this share of its row's root mean square.
    Empty where every element agrees. Arrays of another shape than expected are not compared.
    """
    flat = [pair for name in expected for pair in _arrays(name, expected[name], found[name])]
    marked = [(name, want, got, _excess(want, got, limit)) for name, want, got in flat]
    marked = [item for item in marked if item[3].size and item[3].max() > 0]
    if not marked:
        return ()
    name, want, got, excess = max(marked, key=lambda item: float(item[3].max()))
    row, column = np.unravel_index(int(excess.argmax()), excess.shape)
    others = [c for c in np.flatnonzero(excess[row] > 0).tolist() if c != column]
    places = [row * excess.shape[1] + c for c in (column, *others[: MOST_SHOWN - 1])]
    return tuple(_at(name, want, got, int(place)) for place in places)


def _at(name: str, want: Array, got: Array, place: int) -> Difference:
    index = tuple(int(i) for i in np.unravel_index(place, want.shape))
    return Difference(name, index, float(want[index]), float(got[index]))


def _arrays(
    name: str, want: Array | CacheArrays, got: Array | CacheArrays
) -> Iterator[tuple[str, Array, Array]]:
    if isinstance(want, CacheArrays) and isinstance(got, CacheArrays):
        yield from _arrays(f"{name}.k", read(want.k), read(got.k))
        yield from _arrays(f"{name}.v", read(want.v), read(got.v))
    elif isinstance(want, np.ndarray) and isinstance(got, np.ndarray) and want.shape == got.shape:
        yield name, wide(want).astype(np.float64), wide(got).astype(np.float64)


def _excess(want: Array, got: Array, limit: float) -> Array:
    """[rows, last dimension]: relative error of each element where it is over the limit, else 0."""
    last = want.shape[-1] if want.ndim > 1 else want.size
    rows = want.reshape(want.size // max(last, 1), last)
    with np.errstate(all="ignore"):
        error = np.abs(got.reshape(rows.shape) - rows)
        finite = np.where(np.isfinite(rows), rows, 0.0)
        scale = np.sqrt(np.mean(finite**2, axis=1, keepdims=True))
        share = np.where(error == 0, 0.0, error / scale)
    same = (got.reshape(rows.shape) == rows) | (np.isnan(rows) & np.isnan(got.reshape(rows.shape)))
    share = np.where(np.isnan(share), np.inf, share)
    excess: Array = np.where(same | (share <= limit), 0.0, share)
    return excess
