"""Sized cases of mixtures of experts."""

from __future__ import annotations

from typing import Any

from anychip.ops.cases.draw import Draw
from anychip.ops.cases.experts import CLAMPED, grouped_inputs, mlp_inputs, with_biases
from anychip.ops.cases.grid_sizes import (
    FLAG,
    ROWS,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    bias_left_out,
    grown,
    negated,
    require,
)

T = Dimension("T", 3, ROWS)
_FEWER = tuple(n for n in WIDTHS if n not in (127, 129, 255, 257) and n < 1023)
_TOKENS = (*(n for n in ROWS if n < 66), 1025)
"""Two products of every expert for each: fewer of the large ones."""
_BIAS = Dimension("bias", 0, FLAG)
_SCORINGS = ("softmax", "sigmoid", "softmax_topk")
_ACTIVATIONS = ("silu", "gelu_tanh", "swiglu_clamp")


def _route(op: str, source: Draw, sizes: Sizes) -> Arrays:
    experts, groups = sizes["E"], sizes["groups"]
    require(experts % groups == 0, f"{op}: E = {experts} in groups = {groups}")
    members = experts // groups
    most = members * min(sizes["kept"], groups)
    require(sizes["k"] <= most, f"{op}: k = {sizes['k']} of {most} experts")
    require(sizes["scoring"] < len(_SCORINGS), f"{op}: no scoring {sizes['scoring']}")
    two = sizes["top2"] and groups > 1
    require(not two or members > 1, f"{op}: groups of one expert have no two best")
    bias = source.normal(experts, scale=0.3) if sizes["bias"] else None
    return {"logits": source.normal(sizes["T"], experts, scale=2.0), "bias": bias}


def _route_attrs(sizes: Sizes) -> dict[str, Any]:
    return {
        "k": sizes["k"],
        "scoring": _SCORINGS[sizes["scoring"]],
        "renormalize": bool(sizes["renormalize"]),
        "groups": sizes["groups"],
        "groups_kept": min(sizes["kept"], sizes["groups"]),
        "group_score": "top2" if sizes["top2"] else "max",
    }


def _grouped(op: str, source: Draw, sizes: Sizes) -> Arrays:
    inputs = grouped_inputs(source, sizes["T"], (sizes["K"], sizes["N"], sizes["E"]))
    bias = source.normal(sizes["E"], sizes["N"]) if sizes["bias"] else None
    return {**inputs, "bias": bias}


def _count(sizes: Sizes) -> dict[str, Any]:
    return {"experts_count": sizes["E"]}


def _mlp(op: str, source: Draw, sizes: Sizes) -> Arrays:
    require(sizes["P"] <= sizes["E"], f"{op}: P = {sizes['P']} of E = {sizes['E']} experts")
    known = sizes["activation"] < len(_ACTIVATIONS)
    require(known, f"{op}: no activation {sizes['activation']}")
    inputs = mlp_inputs(source, sizes["T"], (sizes["K"], sizes["I"], sizes["E"], sizes["P"]))
    return with_biases(source, inputs, sizes["E"]) if sizes["bias"] else inputs


def _mlp_attrs(sizes: Sizes) -> dict[str, Any]:
    activation = _ACTIVATIONS[sizes["activation"]]
    clamp = CLAMPED if activation == "swiglu_clamp" else {}
    return {**_count(sizes), "activation": activation, **clamp}


EXPERTS: dict[str, Family] = {
    "route_experts": Family(
        (
            T,
            Dimension("E", 16, (4, 8, 12, 64, 160, 256)),
            Dimension("k", 2, (1, 2, 3, 8)),
            Dimension("scoring", 0, (0, 1, 2)),
            Dimension("groups", 4, (1, 2, 4, 8, 16)),
            Dimension("kept", 2, (1, 2, 3, 4)),
            Dimension("top2", 0, FLAG),
            Dimension("renormalize", 0, FLAG),
            _BIAS,
        ),
        _route,
        negated("logits", least=2),
        _route_attrs,
        (
            {"T": 33, "E": 256, "k": 8, "scoring": 1, "groups": 8, "kept": 4, "top2": 1, "bias": 1},
            {"T": 33, "E": 160, "k": 6, "groups": 8, "kept": 3},
            {"T": 33, "E": 128, "k": 8, "groups": 1, "renormalize": 1},
            {"T": 33, "E": 32, "k": 4, "groups": 1, "scoring": 2},
            {"T": 9, "E": 3, "groups": 1, "bias": 1},
            {"T": 1, "E": 1, "k": 1, "groups": 1},
            {"T": 1025, "E": 8, "groups": 1},
        ),
    ),
    "grouped_linear": Family(
        (
            T,
            Dimension("K", 64, WIDTHS),
            Dimension("N", 48, WIDTHS),
            Dimension("E", 4, (1, 2, 3, 8, 32)),
            _BIAS,
        ),
        _grouped,
        bias_left_out,
        _count,
        (
            {"T": 1025, "K": 96, "N": 65, "bias": 1},
            {"T": 65, "K": 1, "N": 1, "E": 1},
            {"T": 129, "K": 576, "N": 192, "bias": 1},
            {"T": 9, "E": 128, "K": 32, "N": 32},
        ),
    ),
    "expert_mlp": Family(
        (
            Dimension("T", 3, _TOKENS),
            Dimension("K", 64, _FEWER),
            Dimension("I", 32, _FEWER),
            Dimension("E", 8, (2, 3, 8, 32)),
            Dimension("P", 2, (1, 2, 3, 8)),
            Dimension("activation", 0, (0, 1, 2)),
            _BIAS,
        ),
        _mlp,
        grown("x"),
        _mlp_attrs,
        (
            {"T": 257, "K": 96, "I": 64, "P": 4, "bias": 1},
            {"T": 1, "K": 1, "I": 1, "P": 1},
            {"T": 9, "E": 128, "P": 8, "K": 32, "I": 32},
        ),
    ),
}
