"""How far an operator may lie from the oracle: a multiple of what rounding alone explains."""

from __future__ import annotations

import math

from anychip.contract.dtype import DType
from anychip.ops.oracle.arrays import Inputs

ROUNDOFF: dict[DType, float] = {
    DType.FLOAT32: 2.0**-24,
    DType.FLOAT16: 2.0**-11,
    DType.BFLOAT16: 2.0**-8,
}
"""Largest relative error of rounding to nearest: half the distance of two neighbours at 1."""

EXACT = frozenset(
    (
        *("copy", "cast", "fill", "arange", "neg", "abs", "round", "maximum", "minimum", "where"),
        *("lt", "le", "eq", "reduce_max", "reduce_min", "argmax", "gather_rows", "scatter_rows"),
        *("topk", "sort", "histogram", "kv_write", "kv_copy_pages", "greedy", "mask_logits"),
        "latent_write",
    )
)
"""No arithmetic, or one whose result is representable: nothing to round."""

LOGARITHMS = frozenset(("token_logprobs", "top_logprobs"))
"""Logarithms of sums, each element for itself: a sum's relative error is an absolute one of its
logarithm, and that of a nearly certain token is nearly 0."""

ATTENTIONS = ("paged_attention", "sink_attention", "latent_attention", "expanded_attention")
"""Attention over a cache, in its forms."""

HELD = 2.0
HELD_OF = {
    **dict.fromkeys(ATTENTIONS, 4.0),
    "attention_block": 12.0,
    "mlp_block": 12.0,
    "expert_mlp": 6.0,
}
"""How often a result, or what leads to it, may be rounded to the dtype that results are held in."""

COMPUTED = 8.0
COMPUTED_OF = {
    "pow": 32.0,
    **dict.fromkeys(ATTENTIONS, 16.0),
    "attention_block": 32.0,
    "mlp_block": 32.0,
    "expert_mlp": 32.0,
    "gated_delta_rule": 32.0,
}
"""Multiples of float32's roundoff for the arithmetic: approximations of functions, sums."""

_SUMMED = {
    "cumsum": "x",
    "reduce_sum": "x",
    "reduce_mean": "x",
    "matmul": "a",
    "batched_matmul": "a",
    "rms_norm": "x",
    "add_rms_norm": "x",
    "qk_norm": "q",
    "linear": "x",
    "grouped_linear": "x",
    "expert_mlp": "x",
    "route_experts": "logits",
    "lm_head": "x",
    "softmax": "logits",
    "log_softmax": "logits",
    "sample": "logits",
    "token_logprobs": "logits",
    "top_logprobs": "logits",
    "mlp_block": "x",
    "attention_block": "x",
    "causal_conv1d": "weight",
    "gated_delta_rule": "k",
}
"""Operators that sum over the last dimension of an input."""


def terms(op: str, inputs: Inputs) -> int:
    """The longest sum that one element of the result takes, at least 1."""
    length = 1
    if op in _SUMMED:
        length = inputs[_SUMMED[op]].shape[-1]
    if op in (*ATTENTIONS, "attention_block"):
        length = max(length, *inputs["cache"].k.shape[-1:], *inputs["kv_lens"].tolist())
    if op in ("mlp_block", "expert_mlp"):
        length = max(length, inputs["down"].shape[-1])
    if op == "gated_delta_rule":
        length = max(length, *(inputs["cu_q"][1:] - inputs["cu_q"][:-1]).tolist())
    if op == "scatter_add_rows":
        length = len(inputs["index"])
    return max(1, int(length))


def limit(op: str, inputs: Inputs, dtype: DType) -> float:
    """Largest relative L2 error: held * roundoff of dtype + computed * float32's * sqrt(terms).

    dtype: what float results are held in. Products are accumulated in float32 whatever it is, in
    any order: their errors add up as a random walk does. 0 for operators that must be exact.
    """
    if op in EXACT:
        return 0.0
    accumulated = ROUNDOFF[DType.FLOAT32] * math.sqrt(terms(op, inputs))
    held, computed = HELD_OF.get(op, HELD), COMPUTED_OF.get(op, COMPUTED)
    return held * ROUNDOFF[dtype] + computed * accumulated
