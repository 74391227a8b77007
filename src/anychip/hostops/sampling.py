"""Choosing tokens: probabilities in float64, one uniform a row, inverse CDF in id order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs, first_largest
from anychip.hostops.views import Array


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


KERNELS: dict[str, Kernel] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "greedy": greedy,
    "sample": sample,
}
