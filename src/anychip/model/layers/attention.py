"""Self-attention over the cache: as one fused rung where nothing stands between its operators."""

from __future__ import annotations

from typing import Any

from anychip.model.layers.residual import enter, leave
from anychip.model.network import NetworkInputs
from anychip.ops.trace import Ops
from anychip.ops.value import Value


def attention(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """Norm, query, key and value, rotation, cache, attention, output projection; see `Sublayer`."""
    name, config = f"layers.{layer}.", given.config
    fused = (
        config.qk_norm == "none"
        and config.pre_norms
        and not config.sinks
        and not config.output_gate
        and config.layer(layer).rope is not None
    )
    block = _block if fused else _unrolled
    y, total = block(ops, given, layer, x, residual)
    return leave(ops, given, name + "attention_post_norm", y), total


def how_attention_sees(given: NetworkInputs, layer: int) -> dict[str, Any]:
    """The attributes that every attention operator shares."""
    config = given.config
    return {
        "scale": config.score_scale,
        "window": config.layer(layer).window,
        "softcap": config.attention_softcap,
    }


def rotation(given: NetworkInputs, layer: int) -> tuple[Value, dict[str, Any]]:
    """The layer's table of cosines and sines, and the attributes of rotating by it."""
    index = given.config.layer(layer).rope
    assert index is not None
    rope = given.config.ropes[index]
    table = given.weights[table_name(index)]
    assert isinstance(table, Value)
    return table, {"rotary_dim": rope.rotary_dim, "neox": not rope.interleaved}


def table_name(index: int) -> str:
    """The constant that holds the table of the model's rope of that index."""
    return f"cos_sin.{index}" if index else "cos_sin"


def _block(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    config, name = given.config, f"layers.{layer}."
    table, rotary = rotation(given, layer)
    y, total = ops.attention_block(
        x,
        residual,
        given.weights[name + "attention_norm"],
        given.weights[name + "qkv"],
        given.optional(name + "qkv_bias"),
        given.weights[name + "attention_output"],
        given.optional(name + "attention_output_bias"),
        table,
        given.caches[layer],
        given.batch.slots,
        **given.batch.attention(),
        heads=config.heads,
        eps=config.norm_eps,
        **rotary,
        **how_attention_sees(given, layer),
    )
    return y, total


def _unrolled(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    name, config, cache = f"layers.{layer}.", given.config, given.caches[layer]
    y, total = enter(ops, given, name + "attention_norm", x, residual)
    rows = ops.linear(y, given.weights[name + "qkv"], given.optional(name + "qkv_bias"))
    q, k, v = _heads(ops, given, name, rows)
    if config.layer(layer).rope is not None:
        table, rotary = rotation(given, layer)
        q, k = ops.rotary_embedding(q, k, given.batch.positions, table, **rotary)
    ops.kv_write(cache, k, v, given.batch.slots)
    sees = how_attention_sees(given, layer)
    if config.sinks:
        sinks = given.weights[name + "sinks"]
        mixed = ops.sink_attention(q, cache, sinks=sinks, **given.batch.attention(), **sees)
    else:
        mixed = ops.paged_attention(q, cache, **given.batch.attention(), **sees)
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    mixed = mixed.reshape(y.shape[0], query)
    if config.output_gate:
        mixed = ops.mul(mixed, ops.sigmoid(rows.narrow(1, query + 2 * key, query)))
    bias = given.optional(name + "attention_output_bias")
    return ops.linear(mixed, given.weights[name + "attention_output"], bias), total


def _heads(ops: Ops, given: NetworkInputs, name: str, rows: Value) -> tuple[Value, Value, Value]:
    """Queries [T, H, D], keys and values [T, G, D], normed where the family does so."""
    config, tokens = given.config, rows.shape[0]
    heads, kv_heads, dim = config.heads, config.kv_heads, config.head_dim
    query, key = heads * dim, kv_heads * dim
    q, k, v = (
        rows.narrow(1, start, size)
        for start, size in ((0, query), (query, key), (query + key, key))
    )
    if config.qk_norm == "all":
        q = ops.rms_norm(q, given.weights[name + "query_norm"], eps=config.norm_eps)
        k = ops.rms_norm(k, given.weights[name + "key_norm"], eps=config.norm_eps)
    q, k, v = (
        part.reshape(tokens, count, dim)
        for part, count in ((q, heads), (k, kv_heads), (v, kv_heads))
    )
    if config.qk_norm == "head":
        norms = (given.weights[name + role] for role in ("query_norm", "key_norm"))
        q, k = ops.qk_norm(q, k, *norms, eps=config.norm_eps)
    return q, k, v
