"""The oracle of a network's operators outside attention."""

from __future__ import annotations

import numpy as np

from anychip.ops.oracle.arrays import Array, Attrs, Inputs, Oracle, Result, rounded, wide
from anychip.ops.oracle.primitives import gelu_tanh, sigmoid, silu


def _embedding(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((wide(inputs["table"][inputs["tokens"]]) * attrs["scale"],))


def _normalize(x: Array, weight: Array, eps: float) -> Array:
    y: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * wide(weight)
    return y


def _rms_norm(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((_normalize(wide(inputs["x"]), inputs["weight"], attrs["eps"]),))


def _add_rms_norm(inputs: Inputs, attrs: Attrs) -> Result:
    total = wide(inputs["x"]) + wide(inputs["residual"])
    held = rounded(total, inputs["x"].dtype)
    return Result((_normalize(held, inputs["weight"], attrs["eps"]), total))


def _qk_norm(inputs: Inputs, attrs: Attrs) -> Result:
    normal = (
        _normalize(wide(inputs[name]), inputs[f"{name}_weight"], attrs["eps"]) for name in "qk"
    )
    return Result(tuple(normal))


def _rotate(x: Array, rows: Array, attrs: Attrs) -> Array:
    """x [T, heads, D] by rows [T, rotary_dim] of cosines, then sines."""
    half = attrs["rotary_dim"] // 2
    cos, sin = rows[:, None, :half], rows[:, None, half : 2 * half]
    first = slice(0, half) if attrs["neox"] else slice(0, 2 * half, 2)
    second = slice(half, 2 * half) if attrs["neox"] else slice(1, 2 * half, 2)
    y: Array = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def _rotary_embedding(inputs: Inputs, attrs: Attrs) -> Result:
    rows = wide(inputs["cos_sin"])[inputs["positions"]]
    return Result(
        (_rotate(wide(inputs["q"]), rows, attrs), _rotate(wide(inputs["k"]), rows, attrs))
    )


def _linear(inputs: Inputs, attrs: Attrs) -> Result:
    y = wide(inputs["x"]) @ wide(inputs["weight"]).T
    bias = inputs.get("bias")
    return Result((y if bias is None else y + wide(bias),))


def _lm_head(inputs: Inputs, attrs: Attrs) -> Result:
    logits = wide(inputs["x"]) @ wide(inputs["weight"]).T * attrs["scale"]
    cap = attrs["softcap"]
    return Result((cap * np.tanh(logits / cap) if cap > 0 else logits,))


def _silu_and_mul(inputs: Inputs, attrs: Attrs) -> Result:
    gate, up = np.split(wide(inputs["x"]), 2, axis=-1)
    return Result((silu(gate) * up,))


def _gelu_tanh_and_mul(inputs: Inputs, attrs: Attrs) -> Result:
    gate, up = np.split(wide(inputs["x"]), 2, axis=-1)
    return Result((gelu_tanh(gate) * up,))


def _swiglu_clamp_and_mul(inputs: Inputs, attrs: Attrs) -> Result:
    gate, up = np.split(wide(inputs["x"]), 2, axis=-1)
    gate, up = np.minimum(gate, attrs["limit"]), np.clip(up, -attrs["limit"], attrs["limit"])
    return Result((gate * sigmoid(attrs["alpha"] * gate) * (up + 1),))


def _softcap(inputs: Inputs, attrs: Attrs) -> Result:
    cap = attrs["cap"]
    return Result((cap * np.tanh(wide(inputs["x"]) / cap),))


NETWORK: dict[str, Oracle] = {
    "embedding": _embedding,
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "qk_norm": _qk_norm,
    "rotary_embedding": _rotary_embedding,
    "linear": _linear,
    "lm_head": _lm_head,
    "silu_and_mul": _silu_and_mul,
    "gelu_tanh_and_mul": _gelu_tanh_and_mul,
    "swiglu_clamp_and_mul": _swiglu_clamp_and_mul,
    "softcap": _softcap,
}
