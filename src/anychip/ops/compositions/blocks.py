"""The fused rungs, unrolled into the operators that they stand for."""

from __future__ import annotations

from typing import Any

from anychip.ops.compositions.api import Cache, Ops, Value, Weight

ACTIVATIONS = {"silu": "silu_and_mul", "gelu_tanh": "gelu_tanh_and_mul"}
_BATCH = ("page_table", "cu_q", "kv_lens", "positions", "token_rows")
_ATTENTION = ("scale", "causal", "window", "softcap")
_ROTARY = ("rotary_dim", "neox")


def _start(ops: Ops, given: dict[str, Any]) -> tuple[Value, Value]:
    """(norm of the sum, sum) of x, residual or none, norm and eps."""
    x, residual, norm = given["x"], given["residual"], given["norm"]
    if residual is None:
        return ops.rms_norm(x=x, weight=norm, eps=given["eps"]), ops.copy(x=x)
    y, total = ops.add_rms_norm(x=x, residual=residual, weight=norm, eps=given["eps"])
    return y, total


def attention_block(
    ops: Ops, *, qkv: Weight, output: Weight, cache: Cache, heads: int, **given: Any
) -> tuple[Value, Value]:
    """Norm, qkv, rotary, cache write, attention, output projection.

    given: the operator's other inputs and attributes by name, absent inputs as None.
    """
    x, total = _start(ops, given)
    tokens, kv_heads, dim = x.shape[0], cache.k.shape[2], cache.head_dim
    rows = ops.linear(x=x, weight=qkv, bias=given["qkv_bias"])
    rows = rows.reshape(tokens, heads + 2 * kv_heads, dim)
    q, k = ops.rotary_embedding(
        q=rows.narrow(1, 0, heads),
        k=rows.narrow(1, heads, kv_heads),
        positions=given["positions"],
        cos_sin=given["cos_sin"],
        **{name: given[name] for name in _ROTARY},
    )
    v = rows.narrow(1, heads + kv_heads, kv_heads)
    ops.kv_write(cache=cache, k=k, v=v, slots=given["slots"])
    call = {name: given[name] for name in (*_BATCH, *_ATTENTION)}
    mixed = ops.paged_attention(q=q, cache=cache, **call).reshape(tokens, heads * dim)
    return ops.linear(x=mixed, weight=output, bias=given["output_bias"]), total


def mlp_block(
    ops: Ops, *, gate_up: Weight, down: Weight, activation: str, **given: Any
) -> tuple[Value, Value]:
    """Norm, gate and up, activation, down.

    given: the operator's other inputs and attributes by name, absent inputs as None.
    """
    if activation not in ACTIVATIONS:
        known = ", ".join(sorted(ACTIVATIONS))
        raise ValueError(f"mlp_block: no recipe for activation '{activation}'; there is {known}")
    x, total = _start(ops, given)
    inner = ops.linear(x=x, weight=gate_up, bias=given["gate_up_bias"])
    inner = getattr(ops, ACTIVATIONS[activation])(x=inner)
    return ops.linear(x=inner, weight=down, bias=given["down_bias"]), total
