"""The oracle of the fused rungs, in terms of the operators that they stand for."""

from __future__ import annotations

from anychip.ops.oracle.arrays import Array, Attrs, Inputs, Oracle, Result, wide
from anychip.ops.oracle.attention import ATTENTION
from anychip.ops.oracle.network import NETWORK
from anychip.ops.oracle.scaled import elements

ACTIVATIONS = {"silu": "silu_and_mul", "gelu_tanh": "gelu_tanh_and_mul"}


def _start(inputs: Inputs, attrs: Attrs) -> tuple[Array, Array]:
    """(norm of the sum, sum)."""
    given = {**inputs, "weight": inputs["norm"]}
    if inputs.get("residual") is None:
        return NETWORK["rms_norm"](given, attrs).outputs[0], wide(inputs["x"])
    y, total = NETWORK["add_rms_norm"](given, attrs).outputs
    return y, total


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    return NETWORK["linear"]({"x": x, "weight": weight, "bias": bias}, {}).outputs[0]


def _attention_block(inputs: Inputs, attrs: Attrs) -> Result:
    x, total = _start(inputs, attrs)
    cache = inputs["cache"]
    kv_heads, head_dim = cache.k.shape[2], elements(cache.k)
    heads = attrs["heads"]
    qkv = _linear(x, inputs["qkv"], inputs.get("qkv_bias"))
    qkv = qkv.reshape(len(x), heads + 2 * kv_heads, head_dim)
    parts = {**inputs, "q": qkv[:, :heads], "k": qkv[:, heads : heads + kv_heads]}
    q, k = NETWORK["rotary_embedding"](parts, attrs).outputs
    fresh = {**inputs, "q": q, "k": k, "v": qkv[:, heads + kv_heads :]}
    written = ATTENTION["kv_write"](fresh, attrs).written
    y = ATTENTION["paged_attention"]({**fresh, **written}, attrs).outputs[0]
    y = y.reshape(len(x), heads * head_dim)
    y = _linear(y, inputs["output"], inputs.get("output_bias"))
    return Result((y, total), written)


def _mlp_block(inputs: Inputs, attrs: Attrs) -> Result:
    x, total = _start(inputs, attrs)
    gate_up = _linear(x, inputs["gate_up"], inputs.get("gate_up_bias"))
    inner = NETWORK[ACTIVATIONS[attrs["activation"]]]({"x": gate_up}, {}).outputs[0]
    return Result((_linear(inner, inputs["down"], inputs.get("down_bias")), total))


BLOCKS: dict[str, Oracle] = {"attention_block": _attention_block, "mlp_block": _mlp_block}
