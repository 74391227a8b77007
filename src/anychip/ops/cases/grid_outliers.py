"""Cases whose activations hold a few values of +-1e4: what real networks do to some channels.

A row has one of them at most, so that sums do not cancel. What meets one is kept small, so that
the right result fits into float16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from anychip.ops.cases.grid_sizes import Arrays, Sizes
from anychip.ops.oracle.arrays import Array, CacheArrays, latent_arrays

OUTLIER = 1e4

NO_OUTLIERS: Mapping[str, str] = {
    "fill": "takes no activations",
    "arange": "takes no activations",
    "histogram": "takes integers alone",
    "exp": "e**1e4 is no number of any dtype",
    "pow": "a power of 1e4 fits into no float16",
}
"""Operators without such a case -> why."""

_SIZES: dict[str, Sizes] = {
    "paged_attention": {"T": 5, "D": 64},  # heads of 64: what every vendor serves
    "attention_block": {"T": 5},
    "sink_attention": {"T": 5, "D": 64},
    "latent_attention": {"T": 5},
    "expanded_attention": {"T": 5},
    "sample": {"R": 8},
}
"""Sizes of the case where the defaults hold too few rows."""

_SAMPLING = (
    *("softmax", "log_softmax", "greedy", "sample"),
    *("mask_logits", "adjust_logits", "token_logprobs", "top_logprobs"),
)
_POSITIVE = ("log", "sqrt", "rsqrt")


def spiked(array: Array) -> Array:
    """A copy with +-1e4 in every other row (the last dimension), up to five, at other columns."""
    copy = np.array(array)
    rows = copy.reshape(-1, copy.shape[-1])
    for count, row in enumerate(range(0, len(rows), 2)[:5]):
        rows[row, count * 7 % rows.shape[1]] = OUTLIER * (-1) ** count
    return copy


def _inputs(*names: str) -> Callable[[Arrays], Arrays]:
    def change(inputs: Arrays) -> Arrays:
        return {name: spiked(inputs[name]) for name in names}

    return change


def _positive(inputs: Arrays) -> Arrays:
    return {"x": np.abs(spiked(inputs["x"]))}


def _beside_small(inputs: Arrays) -> Arrays:
    """1e4 meets at most 3."""
    return {"a": spiked(inputs["a"]), "b": np.clip(inputs["b"], -3, 3)}


def _gates(inputs: Arrays) -> Arrays:
    """Only gates are large; they meet at most 3."""
    gate, up = np.split(inputs["x"], 2, axis=1)
    return {"x": np.concatenate([spiked(gate), np.clip(up, -3, 3)], axis=1)}


def _values(inputs: Arrays) -> Arrays:
    """Values alone: scores of 1e4 would make each weight 0 or 1."""
    cache = inputs["cache"]
    return {"cache": CacheArrays(cache.k, spiked(cache.v))}


def _pages(inputs: Arrays) -> Arrays:
    return {"cache": inputs["cache"].mapped(spiked)}


def _latents(inputs: Arrays) -> Arrays:
    """The first element of some cached vectors, which no score sees: queries are 0 there, or the
    matrix that makes keys of it is. Its part in values is small."""
    k = inputs["cache"].k.copy()
    for count, page in enumerate(range(0, len(k), 2)):
        k[page, 0, 0, 0] = OUTLIER * (-1) ** count
    changed: Arrays = {"cache": latent_arrays(k, inputs["cache"].latent)}
    if "up" not in inputs:
        q = inputs["q"].copy()
        q[..., 0] = 0.0
        return {**changed, "q": q}
    up = inputs["up"].copy()
    rotated = k.shape[3] - up.shape[2]
    up[:, : inputs["q"].shape[2] - rotated, 0] = 0.0
    return {**changed, "up": np.clip(up, -3, 3)}


def _beside_small_weights(inputs: Arrays) -> Arrays:
    """What meets 1e4 is a thousandth: two products of it follow each other."""
    x = spiked(inputs["x"])
    columns = np.abs(x).max(axis=0) == OUTLIER
    shrunk = np.where(columns, np.float32(1e-3), np.float32(1))
    return {"x": x, "gate_up": inputs["gate_up"] * shrunk}


_CHANGES: dict[str, Callable[[Arrays], Arrays]] = {
    **dict.fromkeys(_POSITIVE, _positive),
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum"), _beside_small),
    **dict.fromkeys(("lt", "le", "eq", "where"), _inputs("a")),
    **dict.fromkeys(("matmul", "batched_matmul"), _inputs("a")),
    **dict.fromkeys(("silu_and_mul", "gelu_tanh_and_mul", "swiglu_clamp_and_mul"), _gates),
    **dict.fromkeys(_SAMPLING, _inputs("logits")),
    **dict.fromkeys(("scatter_rows", "scatter_add_rows"), _inputs("source")),
    "gather_rows": _inputs("table"),
    "embedding": _inputs("table"),
    "add_rms_norm": _inputs("x"),
    "rotary_embedding": _inputs("q", "k"),
    "kv_write": _inputs("k", "v"),
    "kv_copy_pages": _pages,
    "qk_norm": _inputs("q", "k"),
    "route_experts": _inputs("logits"),
    "expert_mlp": _beside_small_weights,
    "paged_attention": _values,
    "sink_attention": _values,
    "latent_write": _inputs("latent"),
    "latent_attention": _latents,
    "expanded_attention": _latents,
    "gated_delta_rule": _inputs("v"),
}
"""Operator -> the inputs that change; "x" where it is not listed."""


def outlier_sizes(op: str) -> Sizes:
    """Sizes of the operator's case with outliers."""
    return _SIZES.get(op, {})


def with_outliers(op: str, inputs: Arrays) -> Arrays:
    """The inputs of a case of `op` with outliers among its activations."""
    return {**inputs, **_CHANGES.get(op, _inputs("x"))(inputs)}
