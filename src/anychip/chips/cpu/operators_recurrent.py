"""Operators of recurrent state."""

from __future__ import annotations

from anychip.chips.cpu.operators_calls import ACTIVATIONS, Fields, Kernel, code_of, tensor_of
from anychip.contract.operators import Call, CallSpec

MAX_WIDTH = 16
"""Inputs that a convolution sums at most: recurrent.cpp."""


def _batch(call: Call) -> Fields:
    return {
        "rows": tensor_of(call, "state_from").shape[0],
        "tokens": tensor_of(call, "positions").shape[0],
        "slots": tensor_of(call, "state").shape[0],
    }


def _conv(call: Call) -> Fields:
    x, weight = tensor_of(call, "x"), tensor_of(call, "weight")
    return {
        **_batch(call),
        "channels": x.shape[1],
        "width": weight.shape[1],
        "x_stride": x.strides[0],
        "type": code_of(x.dtype),
        "silu": call.attrs["activation"] == "silu",
    }


def _conv_covers(call: CallSpec) -> str | None:
    weight = call.inputs["weight"]
    assert weight is not None
    width = weight.shape[1]
    return f"a width of {width}, it covers up to {MAX_WIDTH}" if width > MAX_WIDTH else None


def _delta(call: Call) -> Fields:
    q, k, v = (tensor_of(call, name) for name in "qkv")
    return {
        **_batch(call),
        "heads": v.shape[1],
        "key_heads": k.shape[1],
        "key_dim": k.shape[2],
        "value_dim": v.shape[2],
        "q_stride": q.strides[0],
        "k_stride": k.strides[0],
        "v_stride": v.strides[0],
        "type": code_of(v.dtype),
        "scale": call.attrs["scale"],
    }


_X = {"X": ACTIVATIONS}

RECURRENT: tuple[Kernel, ...] = (
    Kernel("causal_conv1d", "causal_conv1d", _conv, _X, _conv_covers),
    Kernel("gated_delta_rule", "gated_delta_rule", _delta, _X),
)
