"""Embedding, norms, rotation, linears, activations: float32 inside, rounded when stored."""

from __future__ import annotations

import numpy as np

from anychip.hostops.matrix import rows_by_matrix
from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs, gelu_tanh, sigmoid, silu
from anychip.hostops.views import Array, Floats, exact_index, floats


def embedding(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Rows of the table, times scale."""
    table = inputs["table"]
    tokens = exact_index(inputs["tokens"], table.shape[0], "embedding")
    outputs["y"][...] = floats(table[tokens]) * np.float32(attrs["scale"])


def _normed(x: Floats, weight: Array, eps: float) -> Floats:
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float64)
    result: Floats = x * (1.0 / np.sqrt(mean + eps)).astype(np.float32) * weight
    return result


def rms_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Divide each row by its root mean square."""
    outputs["y"][...] = _normed(floats(inputs["x"]), inputs["weight"], attrs["eps"])


def add_rms_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The norm reads the sum as it was stored."""
    outputs["sum"][...] = floats(inputs["x"]) + floats(inputs["residual"])
    outputs["y"][...] = _normed(floats(outputs["sum"]), inputs["weight"], attrs["eps"])


def qk_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Divide each head by its root mean square."""
    for name in ("q", "k"):
        normal = _normed(floats(inputs[name]), inputs[f"{name}_weight"], attrs["eps"])
        outputs[f"{name}_out"][...] = normal


def rotary_embedding(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Turn the pairs of each head by the angle of the token's position."""
    table = inputs["cos_sin"]
    half = attrs["rotary_dim"] // 2
    rows = table[exact_index(inputs["positions"], table.shape[0], "rotary_embedding")]
    cosine, sine = rows[:, None, :half], rows[:, None, half : 2 * half]
    pairs = _halves(half) if attrs["neox"] else _neighbours(half)
    for source, target in (("q", "q_out"), ("k", "k_out")):
        x = floats(inputs[source])
        turned = x.copy()
        turned[..., pairs[0]] = x[..., pairs[0]] * cosine - x[..., pairs[1]] * sine
        turned[..., pairs[1]] = x[..., pairs[1]] * cosine + x[..., pairs[0]] * sine
        outputs[target][...] = turned


def _halves(half: int) -> tuple[slice, slice]:
    return slice(0, half), slice(half, 2 * half)


def _neighbours(half: int) -> tuple[slice, slice]:
    return slice(0, 2 * half, 2), slice(1, 2 * half, 2)


def linear(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """x @ weight.T + bias."""
    y = rows_by_matrix(inputs["x"], inputs["weight"])
    bias = inputs.get("bias")
    outputs["y"][...] = y if bias is None else y + bias


def lm_head(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Logits in float32."""
    logits = rows_by_matrix(inputs["x"], inputs["weight"]) * np.float32(attrs["scale"])
    cap = np.float32(attrs["softcap"])
    outputs["logits"][...] = cap * np.tanh(logits / cap) if cap > 0 else logits


def silu_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """silu of the first half times the second."""
    gate, up = _gate_up(inputs["x"])
    outputs["y"][...] = silu(gate) * up


def gelu_tanh_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """gelu of the first half times the second."""
    gate, up = _gate_up(inputs["x"])
    outputs["y"][...] = gelu_tanh(gate) * up


def clamped(x: Array, attrs: Attrs) -> Floats:
    """GPT-OSS's gate of [N, 2 * I] in float32."""
    gate, up = _gate_up(x)
    limit = np.float32(attrs["limit"])
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    share = sigmoid(np.float32(attrs["alpha"]) * gate)
    y: Floats = gate * share * (up + np.float32(1))
    return y


def swiglu_clamp_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A gate and an up that are held within bounds."""
    outputs["y"][...] = clamped(inputs["x"], attrs)


def _gate_up(x: Array) -> tuple[Floats, Floats]:
    half = x.shape[-1] // 2
    return floats(x[:, :half]), floats(x[:, half:])


def softcap(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """cap * tanh(x / cap)."""
    cap = np.float32(attrs["cap"])
    outputs["y"][...] = cap * np.tanh(floats(inputs["x"]) / cap)


KERNELS: dict[str, Kernel] = {
    "embedding": embedding,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "qk_norm": qk_norm,
    "rotary_embedding": rotary_embedding,
    "linear": linear,
    "lm_head": lm_head,
    "silu_and_mul": silu_and_mul,
    "gelu_tanh_and_mul": gelu_tanh_and_mul,
    "swiglu_clamp_and_mul": swiglu_clamp_and_mul,
    "softcap": softcap,
}
