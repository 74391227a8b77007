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


def _mask_logits(inputs: Inputs, attrs: Attrs) -> Result:
    logits, words = wide(inputs["logits"]), inputs["mask"]
    token = np.arange(logits.shape[1])
    allowed = words[:, token // 32] >> (token % 32) & 1
    return Result((np.where(allowed == 1, logits, -np.inf),))


def _adjust_logits(inputs: Inputs, attrs: Attrs) -> Result:
    y = wide(inputs["logits"]).copy()
    names = ("rows", "ids", "repetition", "bias")
    for row, token, repetition, bias in zip(*(wide(inputs[n]) for n in names), strict=True):
        if row < 0:
            continue
        logit = y[row, token]
        scaled = logit / repetition if logit > 0 else logit * repetition
        y[row, token] = -np.inf if bias == -np.inf else scaled + bias
    return Result((y,))


def _numbers(logits: Array) -> Array:
    """NaN as -inf."""
    x = wide(logits)
    return np.where(np.isnan(x), -np.inf, x)


def _logprobs(numbers: Array) -> Array:
    """[R, V]; NaN throughout a row without a positive finite total."""
    with np.errstate(all="ignore"):
        x = _shifted(numbers)
        total = np.exp(x).sum(axis=-1, keepdims=True)
        return np.where((total > 0) & (total < np.inf), x - np.log(total), np.nan)


def _token_logprobs(inputs: Inputs, attrs: Attrs) -> Result:
    numbers = _numbers(inputs["logits"])
    given: Array = inputs["given"]
    ids = np.where(given >= 0, given, inputs["sampled"])
    place = np.maximum(ids, 0)[:, None]
    own = np.take_along_axis(numbers, place, axis=1)
    logprob = np.take_along_axis(_logprobs(numbers), place, axis=1)[:, 0]
    rank = 1 + (numbers > own).sum(axis=1)
    there = ids >= 0
    return Result((np.where(there, logprob, np.nan), np.where(there, rank, 0).astype(np.int32)))


def _top_logprobs(inputs: Inputs, attrs: Attrs) -> Result:
    numbers = _numbers(inputs["logits"])
    ids = descending(numbers)[:, : attrs["n"]]
    return Result((np.take_along_axis(_logprobs(numbers), ids, axis=1), ids))


SAMPLING: dict[str, Oracle] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "greedy": _greedy,
    "sample": _sample,
    "mask_logits": _mask_logits,
    "adjust_logits": _adjust_logits,
    "token_logprobs": _token_logprobs,
    "top_logprobs": _top_logprobs,
}
