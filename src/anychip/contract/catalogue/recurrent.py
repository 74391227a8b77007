"""Recurrent state: layers that keep a sum of fixed size for each sequence instead of its tokens.

T tokens, B sequences, S slots of state. A batch is ragged as in attention. A sequence's state is
read from slot state_from[b] and written to state_to[b], which may be the same: so a state that is
kept is copied by nobody. A sequence whose first token has position 0 begins with zeros, whatever
lies in its slot; one without tokens reads and writes nothing. No slot is written for two
sequences, or written for one and read for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.catalogue.attention import CU_Q, TOKENS
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

ACTIVATIONS = ("none", "silu")

STATE_BATCH = (
    Arg("state_from", "int32", "B", ArgKind.INDEX),
    Arg("state_to", "int32", "B", ArgKind.INDEX),
    CU_Q,
    *TOKENS,
)


def _conv(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    op, x = "causal_conv1d", inputs["x"]
    assert isinstance(x, TensorSpec)
    width, kept = shape_of(inputs, "weight")[1], shape_of(inputs, "state")[1]
    demand(width > 1, f"{op}: a width of {width} looks at no earlier token")
    demand(kept == width - 1, f"{op}: a state of {kept} inputs, a width of {width}")
    known = attrs["activation"] in ACTIVATIONS
    demand(known, f"{op}: activation {attrs['activation']}, not of {ACTIVATIONS}")
    return (TensorSpec(x.shape, x.dtype),)


def _delta(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    v = inputs["v"]
    assert isinstance(v, TensorSpec)
    heads, groups = v.shape[1], shape_of(inputs, "k")[1]
    fits = groups > 0 and heads % groups == 0
    demand(fits, f"gated_delta_rule: {heads} value heads share {groups} key heads")
    return (TensorSpec(v.shape, v.dtype),)


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "causal_conv1d",
        Tier.COMPOSED,
        (
            Arg("x", "X", "T,C", layout=Layout.ROWS),
            Arg("weight", "float32", "C,W"),
            Arg("bias", "float32", "C", optional=True),
            Arg("state", "X", "S,N,C"),
            *STATE_BATCH,
        ),
        (Arg("y", "X", "T,C"),),
        "Each channel's sum over its W last inputs, the token's own included: y[t, c] = "
        "activation(bias[c] + sum over j of weight[c, j] * x[t - W + 1 + j, c]), in float32, "
        "rounded once. Inputs before the step are the state's N = W - 1, oldest first; before "
        "position 0 they are 0. The state becomes the sequence's last N inputs.",
        (Attr("activation", "str", "none"),),
        writes=("state",),
        infer=_conv,
    ),
    Signature(
        "gated_delta_rule",
        Tier.COMPOSED,
        (
            Arg("q", "X", "T,G,K", layout=Layout.ROWS),
            Arg("k", "X", "T,G,K", layout=Layout.ROWS),
            Arg("v", "X", "T,H,V", layout=Layout.ROWS),
            Arg("decay", "float32", "T,H"),
            Arg("beta", "float32", "T,H"),
            Arg("state", "float32", "S,H,K,V"),
            *STATE_BATCH,
        ),
        (Arg("y", "X", "T,H,V"),),
        "A sequence's state M [H, K, V], token after token: M *= exp(decay); M += outer(k, beta * "
        "(v - k @ M)); y = scale * (q @ M), in float32. Value head h reads query and key head "
        "h // (H / G). decay is a natural logarithm, 0 or less. Yang et al. 2024, Gated Delta "
        "Networks.",
        (Attr("scale", "float"),),
        writes=("state",),
        infer=_delta,
    ),
)
