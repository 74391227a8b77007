"""Multi-head latent attention: the cache holds one small vector a token, shared by all heads.

DeepSeek-V2, section 2.1: a token's vector is [latent of L, normed | R rotated]; a head's key and
value are products of the latent. How they are multiplied out is the operator's business.
"""

from __future__ import annotations

from anychip.model.layers.attention import how_attention_sees, rotation
from anychip.model.layers.residual import enter
from anychip.model.network import NetworkInputs
from anychip.ops.compositions.elements import join
from anychip.ops.trace import Ops
from anychip.ops.value import Value

INNER_EPS = 1e-6
"""Of the norms of latents and of compressed queries, whatever the model's own epsilon is."""


def latent_attention(
    ops: Ops, given: NetworkInputs, layer: int, x: Value, residual: Value | None
) -> tuple[Value, Value]:
    """Norm, queries and latent, rotation, cache, attention, output projection; see `Sublayer`."""
    name, latent = f"layers.{layer}.", given.config.latent
    assert latent is not None
    y, total = enter(ops, given, name + "attention_norm", x, residual)
    q, vector = _queries(ops, given, name, y), _vectors(ops, given, name, y)
    tokens, heads = y.shape[0], given.config.heads
    table, rotary = rotation(given, layer)
    q_rotated, k_rotated = ops.rotary_embedding(
        q.narrow(2, latent.nope, latent.rotated),
        vector.narrow(1, latent.rank, latent.rotated).reshape(tokens, 1, latent.rotated),
        given.batch.positions,
        table,
        **rotary,
    )
    q = _beside(ops, q.narrow(2, 0, latent.nope), q_rotated)
    inner = ops.rms_norm(
        vector.narrow(1, 0, latent.rank), given.weights[name + "latent_norm"], eps=INNER_EPS
    )
    held = _beside(ops, inner.reshape(tokens, 1, latent.rank), k_rotated)
    cache = given.caches[layer]
    ops.latent_write(cache, held.reshape(tokens, held.shape[2]), given.batch.slots)
    mixed = ops.expanded_attention(
        q,
        cache,
        given.weights[name + "expand"],
        **given.batch.attention(),
        nope_dim=latent.nope,
        **how_attention_sees(given, layer),
    )
    flat = mixed.reshape(tokens, heads * latent.value)
    bias = given.optional(name + "attention_output_bias")
    return ops.linear(flat, given.weights[name + "attention_output"], bias), total


def _queries(ops: Ops, given: NetworkInputs, name: str, y: Value) -> Value:
    """[T, H, nope + rotated], from a compressed query where the model has one."""
    latent = given.config.latent
    assert latent is not None
    if latent.query_rank:
        bias = given.optional(name + "query_down_bias")
        y = ops.linear(y, given.weights[name + "query_down"], bias)
        y = ops.rms_norm(y, given.weights[name + "query_down_norm"], eps=INNER_EPS)
    rows: Value = ops.linear(y, given.weights[name + "query"], None)
    return rows.reshape(y.shape[0], given.config.heads, latent.nope + latent.rotated)


def _vectors(ops: Ops, given: NetworkInputs, name: str, y: Value) -> Value:
    """[T, rank + rotated], neither normed nor rotated yet."""
    bias = given.optional(name + "latent_bias")
    rows: Value = ops.linear(y, given.weights[name + "latent"], bias)
    return rows


def _beside(ops: Ops, left: Value, right: Value) -> Value:
    """[T, H, a] and [T, H, b] -> [T, H, a + b]."""
    joined = join(ops, [part.transpose(2, 0, 1) for part in (left, right)])
    y: Value = ops.copy(joined.transpose(1, 2, 0))
    return y
