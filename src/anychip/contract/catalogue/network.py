"""Operators of a network outside attention: embedding, norms, rotation, linears, activation.

T tokens, R rows that want logits, K and N sizes of a linear, I intermediate size, V vocabulary,
H query heads, G KV heads, D head dim. X is the activation dtype; norms and biases are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.dtype import DType
from anychip.contract.signature import Arg, ArgKind, Attr, Layout, Signature, Specs, Tier, shape_of
from anychip.contract.tensor import TensorSpec

_W = Arg("weight", "W", "N,K", ArgKind.WEIGHT)
_EPS = Attr("eps", "float")
_NORM = Arg("weight", "float32", "K")
ROTARY_ATTRS = (Attr("rotary_dim", "int"), Attr("neox", "bool", True))


def _embedding(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    shape = (*shape_of(inputs, "tokens"), shape_of(inputs, "table")[1])
    return (TensorSpec(shape, DType(attrs["dtype"])),)


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "embedding",
        Tier.COMPOSED,
        (Arg("tokens", "int32", "T", ArgKind.INDEX), Arg("table", "W", "V,K", ArgKind.WEIGHT)),
        (Arg("y", "X", "T,K"),),
        "y[t] = table[tokens[t]] * scale, as `dtype`.",
        (Attr("dtype", "dtype"), Attr("scale", "float", 1.0)),
        infer=_embedding,
    ),
    Signature(
        "rms_norm",
        Tier.REQUIRED,
        (Arg("x", "X", "T,K", layout=Layout.ROWS), _NORM),
        (Arg("y", "X", "T,K"),),
        "x / sqrt(mean(x**2) + eps) * weight over each row, in float32.",
        (_EPS,),
    ),
    Signature(
        "add_rms_norm",
        Tier.REQUIRED,
        (Arg("x", "X", "T,K"), Arg("residual", "X", "T,K"), _NORM),
        (Arg("y", "X", "T,K"), Arg("sum", "X", "T,K")),
        "sum = x + residual, rounded to X; y = rms_norm(sum).",
        (_EPS,),
    ),
    Signature(
        "qk_norm",
        Tier.COMPOSED,
        (
            Arg("q", "X", "T,H,D", layout=Layout.ROWS),
            Arg("k", "X", "T,G,D", layout=Layout.ROWS),
            Arg("q_weight", "float32", "D"),
            Arg("k_weight", "float32", "D"),
        ),
        (Arg("q_out", "X", "T,H,D"), Arg("k_out", "X", "T,G,D")),
        "rms_norm of every head by itself, queries and keys each with a weight of their own.",
        (_EPS,),
    ),
    Signature(
        "rotary_embedding",
        Tier.REQUIRED,
        (
            Arg("q", "X", "T,H,D", layout=Layout.ROWS),
            Arg("k", "X", "T,G,D", layout=Layout.ROWS),
            Arg("positions", "int32", "T", ArgKind.INDEX),
            Arg("cos_sin", "float32", "P,C"),
        ),
        (Arg("q_out", "X", "T,H,D"), Arg("k_out", "X", "T,G,D")),
        "Rotate the first rotary_dim elements of each head by the row of cos_sin at its position: "
        "rotary_dim/2 cosines, then as many sines. neox: element i pairs with i + rotary_dim/2, "
        "otherwise 2i with 2i + 1.",
        ROTARY_ATTRS,
    ),
    Signature(
        "linear",
        Tier.REQUIRED,
        (Arg("x", "X", "T,K", layout=Layout.ROWS), _W, Arg("bias", "float32", "N", optional=True)),
        (Arg("y", "X", "T,N"),),
        "y = x @ weight.T + bias, accumulated in float32.",
    ),
    Signature(
        "lm_head",
        Tier.REQUIRED,
        (Arg("x", "X", "T,K"), _W),
        (Arg("logits", "float32", "T,N"),),
        "logits = x @ weight.T * scale in float32; softcap c > 0: c * tanh(logits / c).",
        (Attr("scale", "float", 1.0), Attr("softcap", "float", 0.0)),
    ),
    Signature(
        "silu_and_mul",
        Tier.REQUIRED,
        (Arg("x", "X", "T,2*I"),),
        (Arg("y", "X", "T,I"),),
        "y = silu(x[:, :I]) * x[:, I:], in float32.",
    ),
    Signature(
        "gelu_tanh_and_mul",
        Tier.COMPOSED,
        (Arg("x", "X", "T,2*I"),),
        (Arg("y", "X", "T,I"),),
        "y = gelu_tanh(x[:, :I]) * x[:, I:], in float32.",
    ),
    Signature(
        "swiglu_clamp_and_mul",
        Tier.COMPOSED,
        (Arg("x", "X", "T,2*I"),),
        (Arg("y", "X", "T,I"),),
        "gate = min(x[:, :I], limit), up = x[:, I:] held within -limit .. limit; "
        "y = gate * sigmoid(alpha * gate) * (up + 1), in float32.",
        (Attr("alpha", "float"), Attr("limit", "float")),
    ),
    Signature(
        "softcap",
        Tier.COMPOSED,
        (Arg("x", "X", "..."),),
        (Arg("y", "X", "..."),),
        "cap * tanh(x / cap).",
        (Attr("cap", "float"),),
    ),
)
