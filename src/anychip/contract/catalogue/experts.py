"""Mixtures of experts: which experts a token goes to, and the products of those experts.

T tokens (of grouped_linear: tokens times experts of each), E experts, P experts a token, K, I and R
sizes of a linear. The matrices of all experts are one weight, stacked along its first dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.dtype import DType
from anychip.contract.signature import (
    Arg,
    ArgKind,
    Attr,
    Layout,
    Signature,
    Specs,
    Tier,
    demand,
    shape_of,
)
from anychip.contract.tensor import TensorSpec

SCORINGS = ("softmax", "sigmoid", "softmax_topk")
GROUP_SCORES = ("max", "top2")
GATED = ("silu", "gelu_tanh", "swiglu_clamp")
"""Activations of an expert: the operators "<name>_and_mul"."""

_COUNT = Attr("experts_count", "int")


def _route(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    tokens, experts = shape_of(inputs, "logits")
    k, groups, kept = attrs["k"], attrs["groups"], attrs["groups_kept"]
    op = "route_experts"
    demand(attrs["scoring"] in SCORINGS, f"{op}: scoring {attrs['scoring']}, not of {SCORINGS}")
    score = attrs["group_score"]
    demand(score in GROUP_SCORES, f"{op}: group_score {score}, not of {GROUP_SCORES}")
    divides = groups > 0 and experts % groups == 0
    demand(divides, f"{op}: {experts} experts in {groups} groups of equal size")
    demand(1 <= kept <= groups, f"{op}: groups_kept = {kept} must lie in 1 .. {groups}")
    most = kept * (experts // groups)
    demand(1 <= k <= most, f"{op}: k = {k} must lie in 1 .. {most}")
    least = 2 if groups > 1 and score == "top2" else 1
    demand(experts >= least * groups, f"{op}: top2 of groups of {experts // groups}")
    return (TensorSpec((tokens, k), DType.FLOAT32), TensorSpec((tokens, k), DType.INT32))


def _stacked(op: str, name: str, rows: int, count: int) -> int:
    """Rows of one expert's matrix."""
    demand(count > 0 and rows % count == 0, f"{op}: '{name}' has {rows} rows, {count} experts")
    return rows // count


def _bias(op: str, inputs: Specs, name: str, shape: tuple[int, int]) -> None:
    spec = inputs.get(name)
    fits = spec is None or spec.shape == shape
    demand(fits, f"{op}: '{name}' has shape {spec and spec.shape}, expected {shape}")


def _grouped_linear(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    op, count, x = "grouped_linear", attrs["experts_count"], inputs["x"]
    assert isinstance(x, TensorSpec)
    rows = _stacked(op, "weight", shape_of(inputs, "weight")[0], count)
    _bias(op, inputs, "bias", (count, rows))
    return (TensorSpec((x.shape[0], rows), x.dtype),)


def _expert_mlp(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    op, count, x = "expert_mlp", attrs["experts_count"], inputs["x"]
    assert isinstance(x, TensorSpec)
    demand(attrs["activation"] in GATED, f"{op}: activation {attrs['activation']}, not of {GATED}")
    inner = _stacked(op, "gate_up", shape_of(inputs, "gate_up")[0], count)
    down = shape_of(inputs, "down")
    outer = _stacked(op, "down", down[0], count)
    demand(inner == 2 * down[1], f"{op}: {inner} rows of gate_up by {down[1]} columns of down")
    demand(outer == x.shape[1], f"{op}: {outer} rows of down, {x.shape[1]} columns of x")
    _bias(op, inputs, "gate_up_bias", (count, inner))
    _bias(op, inputs, "down_bias", (count, outer))
    return (TensorSpec(x.shape, x.dtype),)


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "route_experts",
        Tier.COMPOSED,
        (Arg("logits", "float32", "T,E"), Arg("bias", "float32", "E", optional=True)),
        (Arg("weights", "float32", "T,K"), Arg("ids", "int32", "T,K")),
        "Each token's k experts, best first, and their weights. Scores are softmax or sigmoid over "
        "E; choices are scores + bias: the bias chooses and weighs nothing. With groups > 1 "
        "(of neighbouring experts), a group scores its largest choice (max) or the sum of its two "
        "largest (top2), and experts outside the groups_kept best groups are out. ids: the k "
        "largest choices, descending, ties: the lower index first; a NaN counts as -inf. weights: "
        "the scores at ids, with renormalize divided by their sum + 1e-20, times scale. Scoring "
        "softmax_topk: choices are logits + bias, weights the softmax of the k logits.",
        (
            Attr("k", "int"),
            Attr("scoring", "str"),
            Attr("renormalize", "bool", False),
            Attr("groups", "int", 1),
            Attr("groups_kept", "int", 1),
            Attr("group_score", "str", "max"),
            Attr("scale", "float", 1.0),
        ),
        infer=_route,
    ),
    Signature(
        "grouped_linear",
        Tier.COMPOSED,
        (
            Arg("x", "X", "T,K", layout=Layout.ROWS),
            Arg("weight", "W", "M,K", ArgKind.WEIGHT),
            Arg("experts", "int32", "T"),
            Arg("bias", "float32", "E,R", optional=True),
        ),
        (Arg("y", "X", "T,R"),),
        "linear, each row by the matrix of its own expert: R = M / experts_count rows of the "
        "weight from experts[t] * R on; every expert lies in 0 .. experts_count - 1. "
        "Accumulated in float32; the result of a row does not depend on its neighbours.",
        (_COUNT,),
        infer=_grouped_linear,
    ),
    Signature(
        "expert_mlp",
        Tier.COMPOSED,
        (
            Arg("x", "X", "T,K"),
            Arg("gate_up", "W", "M,K", ArgKind.WEIGHT),
            Arg("gate_up_bias", "float32", "E,A", optional=True),
            Arg("down", "O", "J,I", ArgKind.WEIGHT),
            Arg("down_bias", "float32", "E,K", optional=True),
            Arg("weights", "float32", "T,P"),
            Arg("ids", "int32", "T,P"),
        ),
        (Arg("y", "X", "T,K"),),
        "The sum over a token's P experts of weights[t, p] * down(act_and_mul(gate_up(x[t]))) of "
        "expert ids[t, p], in float32, in order of p, rounded once. gate_up: for each expert 2 * I "
        "rows, gate then up; down: for each K rows; every id lies in 0 .. experts_count - 1. The "
        "result of a token does not depend on its neighbours.",
        (
            _COUNT,
            Attr("activation", "str"),
            Attr("alpha", "float", 0.0),
            Attr("limit", "float", 0.0),
        ),
        infer=_expert_mlp,
    ),
)
