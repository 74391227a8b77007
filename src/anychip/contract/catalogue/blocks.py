"""Fused rungs: a chip may serve a whole block; otherwise it is unrolled. Both end where a
tensor-parallel all-reduce goes, so the residual is added at the start of the next one."""

from __future__ import annotations

from anychip.contract.catalogue.attention import ATTENTION_ATTRS, BATCH, CACHE
from anychip.contract.catalogue.network import ROTARY_ATTRS
from anychip.contract.signature import Arg, ArgKind, Attr, Signature, Tier

_START = (
    Arg("x", "X", "T,K"),
    Arg("residual", "X", "T,K", optional=True),
    Arg("norm", "float32", "K"),
)
_END = (Arg("y", "X", "T,K"), Arg("sum", "X", "T,K"))
_EPS = Attr("eps", "float")

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "attention_block",
        Tier.FUSED,
        (
            *_START,
            Arg("qkv", "W", "N,K", ArgKind.WEIGHT),
            Arg("qkv_bias", "float32", "N", optional=True),
            Arg("output", "O", "K,A", ArgKind.WEIGHT),
            Arg("output_bias", "float32", "K", optional=True),
            Arg("cos_sin", "float32", "R,C"),
            CACHE,
            Arg("slots", "int32", "T", ArgKind.INDEX),
            *BATCH,
        ),
        _END,
        "sum = x + residual (x without one); y = output(attention(rotary(qkv(rms_norm(sum))))), "
        "keys and values written to the cache on the way. qkv rows: H*D queries, G*D keys, G*D "
        "values.",
        (Attr("heads", "int"), _EPS, *ROTARY_ATTRS, *ATTENTION_ATTRS),
        writes=("cache",),
    ),
    Signature(
        "mlp_block",
        Tier.FUSED,
        (
            *_START,
            Arg("gate_up", "W", "2*I,K", ArgKind.WEIGHT),
            Arg("gate_up_bias", "float32", "2*I", optional=True),
            Arg("down", "O", "K,I", ArgKind.WEIGHT),
            Arg("down_bias", "float32", "K", optional=True),
        ),
        _END,
        "sum = x + residual; y = down(act_and_mul(gate_up(rms_norm(sum)))).",
        (_EPS, Attr("activation", "str", "silu")),
    ),
)
