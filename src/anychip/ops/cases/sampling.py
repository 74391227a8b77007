"""Cases of choosing tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, draw, scaled


def distribution(op: str) -> list[Case]:
    """softmax and log_softmax: one token, large logits, a token that is ruled out."""
    source = draw(op)
    cases = []
    for rows, size, spread in (
        (0, 5, 1.0),
        (3, 1, 1.0),
        (2, 33, 1.0),
        (3, 64, 5.0),
        (4, 1000, 50.0),
    ):
        inputs = {"logits": source.normal(rows, size, scale=spread)}
        cases.append(
            Case(
                op,
                f"{rows}x{size}",
                inputs,
                {},
                scaled(inputs, "logits") if rows and size > 1 else None,
            )
        )
    ruled = {"logits": np.array([[1, -np.inf, 2, 0]], dtype=np.float32)}
    cases.append(Case(op, "ruled out", ruled, {}, scaled(ruled, "logits")))
    return cases


def greedy(op: str) -> list[Case]:
    """Ties go to the lowest id; a NaN is never chosen."""
    source = draw(op)
    cases = []
    spotted = source.normal(3, 65)
    spotted[0, ::2] = spotted[1] = np.nan
    for name, x in (
        ("no rows", source.normal(0, 5)),
        ("one token", source.normal(3, 1)),
        ("1000", source.normal(4, 1000)),
        ("ties", source.integers(9, 65, high=3).astype(np.float32)),
        ("NaN", spotted),
    ):
        control = Control("logits negated", {"logits": -x}) if x.size and x.shape[1] > 1 else None
        cases.append(Case(op, name, {"logits": x}, {}, control))
    return cases


def sample_inputs(source: Draw, rows: int, size: int, spread: float = 2.0) -> dict[str, Any]:
    """Logits [rows, size] and parameters that leave every token in."""
    return {
        "logits": source.normal(rows, size, scale=spread),
        "temperature": np.full(rows, 0.8, np.float32),
        "top_k": np.zeros(rows, np.int32),
        "top_p": np.ones(rows, np.float32),
        "min_p": np.zeros(rows, np.float32),
        "noise": source.uniform(rows),
    }


def _full(inputs: dict[str, Any], name: str, value: float) -> dict[str, Any]:
    return {name: np.full_like(inputs[name], value)}


def sample(op: str) -> list[Case]:
    """Each parameter alone and all together; the ends of the noise; ties; temperature 0; NaN."""
    source = draw(op)
    wide = sample_inputs(source, 64, 65)
    return [
        *_temperatures(op, wide),
        *_thresholds(op, wide, source),
        *_noises(op, wide),
        *_sizes(op, source),
        *_nothing_to_choose(op, source),
    ]


def _case(op: str, name: str, inputs: dict[str, Any], **other: Any) -> Case:
    """other: the input that the control replaces, a number for all rows or an array."""
    changes = {n: v if np.ndim(v) else np.full_like(inputs[n], v) for n, v in other.items()}
    return Case(op, name, inputs, {}, Control(f"another {', '.join(other)}", changes))


def _temperatures(op: str, wide: dict[str, Any]) -> list[Case]:
    mixed = {"temperature": np.tile(np.array([0, 0.5, 1, 2], np.float32), 16)}
    return [
        _case(op, "temperature", wide, temperature=2.5),
        _case(op, "greedy", wide | _full(wide, "temperature", 0), temperature=1),
        _case(op, "mixed temperatures", wide | mixed, temperature=0),
    ]


def _thresholds(op: str, wide: dict[str, Any], source: Draw) -> list[Case]:
    off = {"top_k": 0, "top_p": 1, "min_p": 0}
    values = (("top_k", 1), ("top_k", 2), ("top_p", 0), ("top_p", 0.5), ("min_p", 0.3))
    found = [
        _case(op, f"{name} {value}", wide | _full(wide, name, value), **{name: off[name]})
        for name, value in values
    ]
    few = wide | _full(wide, "top_k", 20)
    together = few | _full(wide, "top_p", 0.9) | _full(wide, "min_p", 0.05)
    tied = {"logits": source.integers(64, 65, high=3).astype(np.float32)}
    return [
        *found,
        _case(op, "together", together, noise=1 - wide["noise"]),
        _case(op, "ties at the threshold stay", few | tied | _full(wide, "top_k", 4), top_k=0),
        _case(op, "top_k over the vocabulary", wide | _full(wide, "top_k", 1000), top_k=1),
    ]


def _noises(op: str, wide: dict[str, Any]) -> list[Case]:
    last = float(np.nextafter(np.float32(1), np.float32(0)))
    return [
        _case(op, "first noise", wide | _full(wide, "noise", 0), noise=0.5),
        _case(op, "last noise", wide | _full(wide, "noise", last), noise=0.5),
    ]


def _sizes(op: str, source: Draw) -> list[Case]:
    large = sample_inputs(source, 3, 5000, 4.0)
    return [
        _case(op, "5000 tokens", large, noise=1 - large["noise"]),
        Case(op, "one token", sample_inputs(source, 2, 1)),
        Case(op, "no rows", sample_inputs(source, 0, 5)),
    ]


def _nothing_to_choose(op: str, source: Draw) -> list[Case]:
    """NaN among numbers, and rows whose probabilities are not numbers: NaN, -inf, one +inf."""
    spotted = sample_inputs(source, 32, 65)
    spotted["logits"][:, ::3] = np.nan
    alone = sample_inputs(source, 6, 65)
    alone["temperature"][:2] = 0
    alone["logits"][[0, 2]] = np.nan
    alone["logits"][3], alone["logits"][4, 7] = -np.inf, np.inf
    cut = {"top_k": 5, "top_p": 0.9, "min_p": 0.05}
    return [
        _case(op, "NaN among numbers", spotted, noise=1 - spotted["noise"]),
        _case(op, "nothing to choose", alone, logits=alone["logits"][::-1]),
        _case(
            op,
            "nothing to choose, thresholds",
            {**alone, **{n: np.full_like(alone[n], v) for n, v in cut.items()}},
            logits=alone["logits"][::-1],
        ),
    ]


SAMPLING: dict[str, Callable[[str], list[Case]]] = {
    "softmax": distribution,
    "log_softmax": distribution,
    "greedy": greedy,
    "sample": sample,
}
