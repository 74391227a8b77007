"""Choosing tokens: probabilities in float64, one uniform a row, inverse CDF in id order.

And what surrounds it: masks, changes of single logits, log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs, first_largest
from anychip.hostops.views import Array, exact_index


def _shifted(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    result: Array = wide - wide.max(axis=-1, keepdims=True)
    return result


def softmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Probabilities."""
    weights = np.exp(_shifted(inputs["logits"]))
    outputs["y"][...] = weights / weights.sum(axis=-1, keepdims=True)


def log_softmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Natural log-probabilities."""
    shifted = _shifted(inputs["logits"])
    outputs["y"][...] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def greedy(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The largest logit; NaN is never chosen, all NaN gives -1."""
    outputs["tokens"][...] = first_largest(inputs["logits"])


@dataclass(frozen=True)
class _Choice:
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    noise: float


def sample(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Row by row; greedy where the temperature is 0; -1 where nothing can be chosen."""
    logits = inputs["logits"]
    tokens = first_largest(logits)
    names = ("temperature", "top_k", "top_p", "min_p", "noise")
    for row in np.flatnonzero(inputs["temperature"] > 0):
        tokens[row] = _draw(logits[row], _Choice(*(inputs[n][row].item() for n in names)))
    outputs["tokens"][...] = tokens


def _draw(logits: Array, choice: _Choice) -> int:
    numbers = np.where(np.isnan(logits), -np.inf, logits.astype(np.float64))
    weights = np.exp(_shifted(numbers / choice.temperature))
    total = weights.sum()
    if not 0.0 < total < np.inf:
        return -1
    p = weights / total
    kept = np.where(p >= _threshold(p, choice), p, 0.0)
    running = np.cumsum(kept)
    token = np.searchsorted(running, choice.noise * running[-1], side="right")
    return int(min(token, np.flatnonzero(kept)[-1]))


def _threshold(p: Array, choice: _Choice) -> float:
    """The smallest probability that stays."""
    least = 0.0
    if 1 <= choice.top_k < len(p):
        least = float(np.partition(p, len(p) - choice.top_k)[len(p) - choice.top_k])
    if choice.top_p < 1.0:
        ordered = -np.sort(-p[p >= least])
        running = np.cumsum(ordered)
        count = int(np.searchsorted(running, choice.top_p * running[-1], side="left"))
        least = max(least, float(ordered[min(count, len(ordered) - 1)]))
    return max(least, choice.min_p * float(p.max()))


def mask_logits(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """-inf where a token's bit is 0."""
    words = np.ascontiguousarray(inputs["mask"], "<i4").view(np.uint8)
    allowed = np.unpackbits(words, axis=1, bitorder="little")[:, : inputs["logits"].shape[1]]
    outputs["y"][...] = np.where(allowed, inputs["logits"], np.float32(-np.inf))


def adjust_logits(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A copy with a few elements changed; entries with a negative row are skipped."""
    logits, y = inputs["logits"], outputs["y"]
    names = ("rows", "ids", "repetition", "bias")
    used = inputs["rows"] >= 0
    rows, ids, repetition, bias = (inputs[n][used] for n in names)
    exact_index(rows, logits.shape[0], "adjust_logits, row")
    exact_index(ids, logits.shape[1], "adjust_logits, token")
    old = logits[rows, ids]
    scaled = np.where(old > 0, old / repetition, old * repetition)
    y[...] = logits
    y[rows, ids] = np.where(bias == -np.inf, bias, scaled + bias)


def _numbers(logits: Array) -> Array:
    """NaN as -inf."""
    return np.where(np.isnan(logits), np.float32(-np.inf), logits)


def _less_total(values: Array, numbers: Array) -> Array:
    """Log-probabilities of some logits [R, any] of rows [R, V]: differences in float64."""
    top = numbers.max(axis=-1, keepdims=True)
    total = np.exp(numbers - top).sum(axis=-1, keepdims=True, dtype=np.float64)
    result: Array = values.astype(np.float64) - top - np.log(total)
    return result


def token_logprobs(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Log-probability and rank of one token a row."""
    numbers = _numbers(inputs["logits"])
    given: Array = inputs["given"]
    ids = np.where(given >= 0, given, inputs["sampled"])
    place = exact_index(np.maximum(ids, 0), numbers.shape[1], "token_logprobs, token")[:, None]
    own = np.take_along_axis(numbers, place, axis=1)
    there = ids >= 0
    outputs["logprob"][...] = np.where(there, _less_total(own, numbers)[:, 0], np.nan)
    outputs["rank"][...] = np.where(there, 1 + (numbers > own).sum(axis=1), 0)


def top_logprobs(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Sorted is what may be among the n largest alone: rows are long, n is small."""
    numbers, n = _numbers(inputs["logits"]), attrs["n"]
    size = numbers.shape[1]
    least = np.partition(numbers, size - n, axis=1)[:, size - n]
    for row, line in enumerate(numbers):
        ids = np.flatnonzero(line >= least[row])
        outputs["ids"][row] = ids[np.argsort(-line[ids], kind="stable")[:n]]
    values = np.take_along_axis(numbers, outputs["ids"], axis=1)
    outputs["values"][...] = _less_total(values, numbers)


KERNELS: dict[str, Kernel] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "greedy": greedy,
    "sample": sample,
    "mask_logits": mask_logits,
    "adjust_logits": adjust_logits,
    "token_logprobs": token_logprobs,
    "top_logprobs": top_logprobs,
}
