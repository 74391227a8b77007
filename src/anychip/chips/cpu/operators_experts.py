"""Mixtures of experts, see `kernels/experts.cpp`: calls become its structs."""

from __future__ import annotations

from anychip.chips.cpu.operators_calls import (
    ACTIVATIONS,
    FORMATS,
    Fields,
    Kernel,
    code_of,
    linear_covers,
    scratch_of,
    tensor_of,
    weight_of,
)
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec

SCORINGS = ("softmax", "sigmoid", "softmax_topk")
KINDS = ("silu", "gelu_tanh", "swiglu_clamp")
"""By their codes in abi.h."""


def _routed(call: Call) -> Fields:
    return _route_sizes(call.spec) | {"scale": call.attrs["scale"]}


def _route_sizes(call: CallSpec) -> Fields:
    logits, attrs = call.inputs["logits"], call.attrs
    assert logits is not None
    return {
        "rows": logits.shape[0],
        "experts": logits.shape[1],
        "scoring": SCORINGS.index(attrs["scoring"]),
        "top2": attrs["group_score"] == "top2",
        **{name: attrs[name] for name in ("k", "renormalize", "groups", "groups_kept")},
    }


def _grouped(call: Call) -> Fields:
    return {
        **_grouped_sizes(call.spec),
        "x_stride": tensor_of(call, "x").strides[0],
        "format": code_of(weight_of(call, "weight").spec.format),
    }


def _grouped_sizes(call: CallSpec) -> Fields:
    x, weight, count = call.inputs["x"], call.inputs["weight"], call.attrs["experts_count"]
    assert isinstance(x, TensorSpec) and isinstance(weight, WeightSpec)
    return {
        "rows": x.shape[0],
        "n": weight.shape[0] // count,
        "k": weight.shape[1],
        "type": code_of(x.dtype),
        "count": count,
    }


def _grouped_covers(call: CallSpec) -> str | None:
    return linear_covers(call, "weight")


def _mlp(call: Call) -> Fields:
    return {
        **_mlp_sizes(call.spec),
        "gate_up_format": code_of(weight_of(call, "gate_up").spec.format),
        "down_format": code_of(weight_of(call, "down").spec.format),
        "kind": KINDS.index(call.attrs["activation"]),
        **{name: call.attrs[name] for name in ("alpha", "limit")},
    }


def _mlp_sizes(call: CallSpec) -> Fields:
    x, down, ids = (call.inputs[name] for name in ("x", "down", "ids"))
    assert isinstance(x, TensorSpec) and isinstance(down, WeightSpec) and ids is not None
    return {
        "rows": x.shape[0],
        "k": x.shape[1],
        "inner": down.shape[1],
        "used": ids.shape[1],
        "count": call.attrs["experts_count"],
        "type": code_of(x.dtype),
    }


def _mlp_covers(call: CallSpec) -> str | None:
    return linear_covers(call, "gate_up", "down")


EXPERTS: tuple[Kernel, ...] = (
    Kernel(
        "route_experts",
        "route_experts",
        _routed,
        {},
        workspace=scratch_of("route_experts", _route_sizes),
    ),
    Kernel(
        "grouped_linear",
        "grouped_linear",
        _grouped,
        {"X": ACTIVATIONS, "W": FORMATS},
        _grouped_covers,
        scratch_of("grouped_linear", _grouped_sizes),
    ),
    Kernel(
        "expert_mlp",
        "expert_mlp",
        _mlp,
        {"X": ACTIVATIONS, "W": FORMATS, "O": FORMATS},
        _mlp_covers,
        scratch_of("expert_mlp", _mlp_sizes),
    ),
)
