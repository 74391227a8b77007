"""Cases of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, apart, changed, draw, scaled, without
from anychip.ops.oracle.arrays import Array

CLAMPED = {"activation": "swiglu_clamp", "alpha": 1.702, "limit": 7.0}
"""GPT-OSS's gate."""


def route_experts(op: str) -> list[Case]:
    """Each scoring, each option, as Mixtral, DeepSeek and GPT-OSS choose; ties, a NaN."""
    source = draw(op)
    logits = source.normal(33, 16, scale=2.0)
    plain, biased = {"logits": logits, "bias": None}, {"logits": logits}
    biased["bias"] = source.normal(16, scale=0.3)
    base = {"k": 4, "scoring": "softmax"}
    limited = {"k": 3, "scoring": "sigmoid", "groups": 4, "groups_kept": 2}
    narrow = {"k": 3, "scoring": "softmax", "groups": 4, "groups_kept": 1}
    topk = {"k": 4, "scoring": "softmax_topk"}
    return [
        Case(op, "no tokens", {"logits": source.normal(0, 8), "bias": None}, base),
        Case(op, "one of one", {"logits": source.normal(3, 1), "bias": None}, {**base, "k": 1}),
        Case(op, "softmax", plain, base, changed("scoring", "sigmoid")),
        Case(op, "sigmoid", plain, {**base, "scoring": "sigmoid"}, changed("scoring", "softmax")),
        Case(op, "softmax of the best", plain, topk, changed("scoring", "softmax")),
        Case(op, "bias", biased, {**base, "scoring": "sigmoid"}, without("bias")),
        Case(op, "bias of the best", biased, topk, without("bias")),
        Case(
            op, "renormalize", plain, {**base, "renormalize": True}, changed("renormalize", False)
        ),
        Case(op, "scale", plain, {**base, "scale": 2.5}, changed("scale", 1.0)),
        Case(op, "groups", plain, narrow, changed("groups", 2)),
        Case(op, "groups kept", plain, limited, changed("groups_kept", 3)),
        Case(op, "best of a group", biased, limited, changed("group_score", "top2")),
        Case(op, "two best", biased, {**limited, "group_score": "top2"}, without("bias")),
        Case(op, "ties and a NaN", _ties(), {**base, "k": 2}, changed("scoring", "sigmoid")),
    ]


def _ties() -> dict[str, Any]:
    """The lower index wins; a NaN is never chosen before a number."""
    logits = np.tile(np.array([1, 2, 2, -1, 2, 0], np.float32), (3, 1))
    logits[1] = 0.5
    return {"logits": logits, "bias": np.array([0, 0, 0, 0, 0, np.nan], np.float32)}


def experts_of(source: Draw, rows: int, count: int) -> Array:
    """[rows]: an expert for each."""
    return source.integers(rows, high=count)


def distinct_ids(source: Draw, tokens: int, chosen: int, count: int) -> Array:
    """[tokens, chosen] of `count` experts, none twice for one token."""
    ids = [source.distinct(chosen, high=count) for _ in range(tokens)]
    found: Array = np.stack(ids) if ids else np.zeros((0, chosen), np.int32)
    return found


def grouped_inputs(source: Draw, rows: int, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Rows, matrices, and an expert for each row. sizes: columns, rows and number of matrices."""
    k, n, count = sizes
    return {
        "x": source.normal(rows, k),
        "weight": source.normal(count * n, k, scale=k**-0.5),
        "experts": experts_of(source, rows, count),
        "bias": None,
    }


def grouped_linear(op: str) -> list[Case]:
    """Sizes around tiles and blocks of 32; experts that nobody, and that everybody chose."""
    source = draw(op)
    cases = []
    for rows, sizes in (
        (0, (32, 8, 2)),
        (1, (1, 1, 1)),
        (1, (64, 48, 8)),
        (7, (33, 17, 3)),
        (33, (96, 65, 4)),
    ):
        inputs = grouped_inputs(source, rows, sizes)
        attrs = {"experts_count": sizes[2]}
        control = scaled(inputs, "weight") if rows else None
        cases.append(Case(op, f"{rows} by {sizes}", inputs, attrs, control))
        biased = {**inputs, "bias": source.normal(sizes[2], sizes[1])}
        control = without("bias") if rows else None
        cases.append(Case(op, f"{rows} by {sizes} bias", biased, attrs, control))
    attrs, inputs = {"experts_count": 4}, grouped_inputs(source, 9, (64, 32, 4))
    crowd = {**inputs, "experts": np.full(9, 2, np.int32)}
    next_ones = (inputs["experts"] + 1) % 4
    moved = Control("the next expert", {"experts": next_ones.astype(np.int32)})
    spaced = {**inputs, "x": apart(inputs["x"], 32)}
    return [
        *cases,
        Case(op, "all to one", crowd, attrs, Control("others", {"experts": inputs["experts"]})),
        Case(op, "others", inputs, attrs, moved),
        Case(op, "rows apart", spaced, attrs, scaled(spaced, "x")),
    ]


def mlp_inputs(source: Draw, tokens: int, sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    """Everything that expert_mlp takes, without biases. sizes: K, I, experts, experts a token."""
    k, inner, count, chosen = sizes
    return {
        "x": source.normal(tokens, k),
        "gate_up": source.normal(count * 2 * inner, k, scale=k**-0.5),
        "gate_up_bias": None,
        "down": source.normal(count * k, inner, scale=inner**-0.5),
        "down_bias": None,
        "weights": source.uniform(tokens, chosen, low=0.1, high=0.6),
        "ids": distinct_ids(source, tokens, chosen, count),
    }


def with_biases(source: Draw, inputs: dict[str, Any], count: int) -> dict[str, Any]:
    """The same inputs with both biases."""
    inner, columns = 2 * inputs["down"].shape[1], inputs["x"].shape[1]
    return {
        **inputs,
        "gate_up_bias": source.normal(count, inner, scale=0.5),
        "down_bias": source.normal(count, columns, scale=0.5),
    }


def expert_mlp(op: str) -> list[Case]:
    """Sizes, each activation with its options, biases, weights and ids that matter."""
    source = draw(op)
    cases = []
    for tokens, sizes in ((0, (8, 8, 2, 1)), (1, (33, 17, 3, 2)), (7, (64, 32, 8, 3))):
        inputs = mlp_inputs(source, tokens, sizes)
        attrs = {"experts_count": sizes[2], "activation": "silu"}
        control = scaled(inputs, "weights") if tokens else None
        cases.append(Case(op, f"{tokens} by {sizes}", inputs, attrs, control))
    biased = with_biases(source, inputs, 8)
    clamped = {**attrs, **CLAMPED, "limit": 1.0}
    other = Control("ids in another order", {"ids": np.ascontiguousarray(inputs["ids"][:, ::-1])})
    return [
        *cases,
        Case(op, "gate_up bias", biased, attrs, without("gate_up_bias")),
        Case(op, "down bias", biased, attrs, without("down_bias")),
        Case(op, "ids", inputs, attrs, other),
        Case(op, "gelu_tanh", inputs, {**attrs, "activation": "gelu_tanh"}, _as_silu()),
        Case(op, "clamped", biased, clamped, _as_silu()),
        Case(op, "alpha", biased, clamped, changed("alpha", 1.0)),
        Case(op, "limit", biased, clamped, changed("limit", 7.0)),
    ]


def _as_silu() -> Control:
    return changed("activation", "silu")


EXPERTS: dict[str, Callable[[str], list[Case]]] = {
    "route_experts": route_experts,
    "grouped_linear": grouped_linear,
    "expert_mlp": expert_mlp,
}
