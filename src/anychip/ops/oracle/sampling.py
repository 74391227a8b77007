"""The oracle of choosing tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anychip.ops.oracle.arrays import Array, Attrs, Inputs, Oracle, Result, wide
from anychip.ops.oracle.primitives import descending, first_largest


def _shifted(x: Array) -> Array:
    y: Array = x - x.max(axis=-1, keepdims=True)
    return y


def _softmax(inputs: Inputs, attrs: Attrs) -> Result:
    exponents = np.exp(_shifted(wide(inputs["logits"])))
    return Result((exponents / exponents.sum(axis=-1, keepdims=True),))


def _log_softmax(inputs: Inputs, attrs: Attrs) -> Result:
    x = _shifted(wide(inputs["logits"]))
    return Result((x - np.log(np.exp(x).sum(axis=-1, keepdims=True)),))


def _greedy(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((first_largest(wide(inputs["logits"])),))


@dataclass(frozen=True)
class Draw:
    """One row of `sample`: logits [V] and its parameters."""

    logits: Array
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    noise: float


def row_of(inputs: Inputs, row: int) -> Draw:
    """One row of a `sample` call."""
    numbers = {
        n: inputs[n][row].item() for n in ("temperature", "top_k", "top_p", "min_p", "noise")
    }
    return Draw(wide(inputs["logits"][row]), **numbers)


def staying(draw: Draw, slack: float = 0.0) -> Array:
    """[V]: probability of each token that stays, 0 elsewhere; a NaN logit has probability 0.

    slack loosens (or, below zero, tightens) every threshold by that relative amount: a checker
    asks with it which answers a rounded computation may give.
    """
    logits = np.where(np.isnan(draw.logits), -np.inf, draw.logits)
    with np.errstate(invalid="ignore"):
        exponents = np.exp(_shifted(logits) / draw.temperature)
    if not 0 < exponents.sum() < np.inf:
        return np.zeros_like(exponents)
    p = exponents / exponents.sum()
    threshold = max(draw.min_p * p.max(), _top_p_threshold(p, draw, slack))
    return np.where(p >= min(threshold * (1 - slack), p.max()), p, 0.0)


def _top_p_threshold(p: Array, draw: Draw, slack: float) -> float:
    """The larger of top_k's and top_p's thresholds."""
    values = p[descending(p)]
    smallest = float(values[draw.top_k - 1]) if 1 <= draw.top_k <= len(p) else 0.0
    if draw.top_p >= 1:
        return smallest
    left = values[values >= min(smallest * (1 - slack), values[0])]
    sums = np.cumsum(left)
    reached = np.searchsorted(sums, draw.top_p * (1 + slack) * sums[-1], side="left")
    return max(smallest, float(left[min(int(reached), len(left) - 1)]))


def choose(draw: Draw, slack: float = 0.0, shift: float = 0.0) -> int:
    """The token of one row, -1 where none can be chosen.

    shift: added to the noise, relative to the total.
    """
    if draw.temperature == 0:
        return int(first_largest(draw.logits))
    sums = np.cumsum(staying(draw, slack))
    if sums[-1] == 0:
        return -1
    target = np.clip(draw.noise + shift, 0.0, 1.0) * sums[-1]
    beyond = np.searchsorted(sums, target, side="right")
    last = np.searchsorted(sums, sums[-1], side="left")
    return int(min(beyond, last))


def _sample(inputs: Inputs, attrs: Attrs) -> Result:
    tokens = [choose(row_of(inputs, r)) for r in range(len(inputs["logits"]))]
    return Result((np.array(tokens, dtype=np.int32),))


SAMPLING: dict[str, Oracle] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "greedy": _greedy,
    "sample": _sample,
}
