"""Sized cases of choosing tokens."""

from __future__ import annotations

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw
from anychip.ops.cases.grid_sizes import (
    ROWS,
    VOCABULARY,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    negated,
)
from anychip.ops.cases.logits import entries, mask_of, tokens_of
from anychip.ops.cases.sampling import sample_inputs

_PARAMETERS = {
    "temperature": (0.8, 0.0, 1.5, 0.8),
    "top_k": (0, 0, 20, 5),
    "top_p": (1.0, 1.0, 1.0, 0.9),
    "min_p": (0.0, 0.0, 0.0, 0.02),
}
"""Rows take turns: plain, greedy, top_k, all thresholds together."""


def _logits(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {"logits": source.normal(sizes["R"], sizes["V"], scale=3)}


def _sample(op: str, source: Draw, sizes: Sizes) -> Arrays:
    rows = sizes["R"]
    inputs = sample_inputs(source, rows, sizes["V"])
    for name, values in _PARAMETERS.items():
        inputs[name] = np.resize(np.array(values, inputs[name].dtype), rows)
    return inputs


def _sample_control(case: Case) -> Control | None:
    logits, noise = case.inputs["logits"], case.inputs["noise"]
    if logits.size == 0 or logits.shape[1] < 2:
        return None
    return Control("logits and noise turned", {"logits": -logits, "noise": 1 - noise})


_DIMENSIONS = (
    Dimension("R", 4, ROWS),
    Dimension("V", 65, (*WIDTHS, *(v for v in VOCABULARY if v not in WIDTHS))),
)
_CROSSED: tuple[Sizes, ...] = ({"R": 1025, "V": 257}, {"R": 1, "V": 32000}, {"R": 1, "V": 1})
_LOGITS = Family(_DIMENSIONS, _logits, negated("logits", least=2), crossed=_CROSSED)

_LISTED = Dimension("N", 5, (1, 2, 3, 4, 8, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65))
"""Log-probabilities a row, where the vocabulary has as many."""
_ENTRIES = Dimension("K", 6, (0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1025))


def _mask(op: str, source: Draw, sizes: Sizes) -> Arrays:
    mask = mask_of(source, sizes["R"], sizes["V"])
    return {**_logits(op, source, sizes), "mask": mask}


def _mask_control(case: Case) -> Control | None:
    mask = case.inputs["mask"]
    return Control("every other bit", {"mask": ~mask}) if mask.size else None


def _entries(op: str, source: Draw, sizes: Sizes) -> Arrays:
    found = entries(source, sizes["R"], sizes["V"], sizes["K"])
    return {**_logits(op, source, sizes), **found}


def _tokens(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return {**_logits(op, source, sizes), **tokens_of(source, sizes["R"], sizes["V"])}


SAMPLING: dict[str, Family] = {
    **dict.fromkeys(("softmax", "log_softmax", "greedy"), _LOGITS),
    "sample": Family(_DIMENSIONS, _sample, _sample_control, crossed=_CROSSED),
    "mask_logits": Family(_DIMENSIONS, _mask, _mask_control, crossed=_CROSSED),
    "adjust_logits": Family(
        (*_DIMENSIONS, _ENTRIES), _entries, negated("logits"), crossed=_CROSSED
    ),
    "token_logprobs": Family(_DIMENSIONS, _tokens, negated("logits", least=2), crossed=_CROSSED),
    "top_logprobs": Family(
        (*_DIMENSIONS, _LISTED),
        _logits,
        negated("logits", least=2),
        lambda sizes: {"n": min(sizes["N"], sizes["V"])},
        crossed=_CROSSED,
    ),
}
