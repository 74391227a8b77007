"""Recipes of attention over a latent cache: one vector a token, shared by all heads."""

from __future__ import annotations

from typing import Any

from anychip.ops.compositions.api import Cache, Ops, Value
from anychip.ops.compositions.attention import BATCH, SCORES, over
from anychip.ops.compositions.elements import F32, cast, fresh, join


def latent_attention(ops: Ops, *, q: Value, cache: Cache, value_dim: int, **given: Any) -> Value:
    """given: the operator's other inputs and attributes by name."""
    return over(ops, q, cache, given, value_dim=value_dim)


def expanded_attention(
    ops: Ops, *, q: Value, cache: Cache, up: Value, nope_dim: int, **given: Any
) -> Value:
    """The same product in another order: queries meet the matrix of the keys, so that no key is
    expanded, and what comes of the latents meets that of the values.

    q . (up_k latent) = (up_k.T q) . latent, and the sum over w * (up_v latent) is up_v times the
    sum over w * latent. given: the operator's other inputs and attributes by name.
    """
    (tokens, heads, width), (_, _, rank) = q.shape, up.shape
    up = cast(ops, up, F32)
    if tokens == 0:
        shape = (0, heads, up.shape[1] - nope_dim)
        empty: Value = ops.fill(shape=shape, value=0.0, dtype=q.dtype.value)
        return empty
    keys, values = up.narrow(1, 0, nope_dim), up.narrow(1, nope_dim, up.shape[1] - nope_dim)
    wide = cast(ops, q, F32).transpose(1, 0, 2)
    absorbed = ops.batched_matmul(a=wide.narrow(2, 0, nope_dim), b=keys, transpose_b=False)
    rotated = wide.narrow(2, nope_dim, width - nope_dim)
    parts = [part.transpose(2, 1, 0) for part in (absorbed, rotated) if part.shape[2]]
    asked = fresh(ops, join(ops, parts).transpose(1, 2, 0), F32)
    call = {name: given[name] for name in (*BATCH, "cu_q", *SCORES)}
    mixed = ops.latent_attention(q=asked, cache=cache, value_dim=rank, **call)
    y = ops.batched_matmul(a=mixed.transpose(1, 0, 2), b=values, transpose_b=True)
    return fresh(ops, y.transpose(1, 0, 2), q.dtype)
