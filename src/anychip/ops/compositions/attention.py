"""Recipes of attention over a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anychip.ops.compositions.api import Cache, Ops, Value
from anychip.ops.compositions.context import I32, Context, gathered
from anychip.ops.compositions.elements import F32, as_float, cast, contiguous, join, number

TILE_BYTES = 32 << 20
"""A tile of float32 scores stays under this."""

LOWEST = -3.0e38
"""Score of what a token does not see: finite, so that no difference of two is a NaN."""


@dataclass(frozen=True)
class Scores:
    """How scores become weights, and what they weigh.

    sinks: [H], None where there are none. value_dim: see `gathered`.
    """

    scale: float
    causal: bool
    window: int
    softcap: float
    sinks: Value | None = None
    value_dim: int = 0


@dataclass(frozen=True)
class Batch:
    """The indices of a ragged batch that recipes read."""

    page_table: Value
    kv_lens: Value
    positions: Value
    token_rows: Value


SCORES = ("scale", "causal", "window", "softcap")
BATCH = ("page_table", "kv_lens", "positions", "token_rows")


def over(ops: Ops, q: Value, cache: Cache, given: dict[str, Any], **more: Any) -> Value:
    """`attend` with the indices and attributes among an operator's arguments by name.

    more: fields of Scores that no attribute gives.
    """
    batch = Batch(**{name: given[name] for name in BATCH})
    how = Scores(**{name: given[name] for name in SCORES}, **more)
    return attend(ops, q, cache, batch, how)


def paged_attention(ops: Ops, *, q: Value, cache: Cache, **given: Any) -> Value:
    """given: the operator's other inputs and attributes by name."""
    return over(ops, q, cache, given)


def sink_attention(ops: Ops, *, q: Value, cache: Cache, sinks: Value, **given: Any) -> Value:
    """given: the operator's other inputs and attributes by name."""
    return over(ops, q, cache, given, sinks=sinks)


def attend(ops: Ops, q: Value, cache: Cache, batch: Batch, how: Scores) -> Value:
    """Few tokens: each against its own row. Many: tiles of tokens against every row, one kept.

    q [T, H, D] -> [T, H, E]. A row is reduced over its own columns alone, what a token does not
    see weighs exactly zero: the result does not depend on what shares the batch.
    """
    tokens, heads, dim = q.shape
    if tokens == 0:
        width = how.value_dim or dim
        empty: Value = ops.fill(shape=(0, heads, width), value=0.0, dtype=q.dtype.value)
        return empty
    if tokens <= batch.page_table.shape[0]:
        table = ops.gather_rows(table=batch.page_table, index=batch.token_rows)
        lengths = ops.gather_rows(table=batch.kv_lens, index=batch.token_rows)
        context = gathered(ops, cache, table, lengths, how.value_dim)
        return _each_its_row(ops, q, context, batch.positions, how)
    context = gathered(ops, cache, batch.page_table, batch.kv_lens, how.value_dim)
    step = max(1, TILE_BYTES // (F32.itemsize * heads * context.batch * max(dim, context.width)))
    tiles = []
    for start in range(0, tokens, step):
        size = min(step, tokens - start)
        tile = (v.narrow(0, start, size) for v in (batch.token_rows, batch.positions))
        tiles.append(_all_rows(ops, q.narrow(0, start, size), context, tuple(tile), how))
    return join(ops, tiles)


def _each_its_row(ops: Ops, q: Value, context: Context, positions: Value, how: Scores) -> Value:
    """q [T, H, D] -> [T, H, E]; row t of the context is token t's."""
    tokens, heads, dim = q.shape
    seen = _seen(ops, context, context.under, positions.reshape(tokens, 1), how)
    rows = contiguous(ops, cast(ops, q, F32)).reshape(tokens, heads, 1, dim)
    y = _attend(ops, rows, context, seen.reshape(tokens, 1, 1, context.width), how)
    return cast(ops, y, q.dtype).reshape(tokens, heads, context.values.shape[2])


def _all_rows(ops: Ops, q: Value, context: Context, tile: tuple[Value, ...], how: Scores) -> Value:
    """q [t, H, D] -> [t, H, E]. tile: token_rows and positions, [t] each."""
    (size, heads, dim), (token_rows, positions) = q.shape, tile
    batch, width = context.batch, context.width
    under = context.under.reshape(batch, 1, 1, width)
    each = _seen(ops, context, under, positions.reshape(size, 1), how)
    rows = ops.arange(length=batch, dtype="int32").reshape(batch, 1)
    own = ops.eq(a=rows, b=token_rows.reshape(1, size)).reshape(batch, 1, size, 1)
    seen = ops.mul(a=each, b=as_float(ops, own))
    turned = cast(ops, q, F32).transpose(1, 0, 2).broadcast_to(batch, heads, size, dim)
    y = _attend(ops, ops.copy(x=turned), context, seen, how)
    # One row is the token's own, the others add exact zeros: selected, since theirs may be NaN.
    kept = ops.where(condition=own, a=y, b=number(ops, 0))
    total = ops.reduce_sum(x=kept.transpose(2, 1, 3, 0))
    return cast(ops, total, q.dtype).reshape(size, heads, context.values.shape[2])


def _seen(ops: Ops, context: Context, under: Value, positions: Value, how: Scores) -> Value:
    """1.0 where a token at `positions` [t, 1] sees a column: `under` by [t, W], broadcast."""
    seen, steps = under, []
    if how.causal:
        steps.append(ops.le(a=context.columns, b=positions))
    if how.window > 0:
        before = ops.sub(a=positions, b=number(ops, how.window, I32))
        steps.append(ops.lt(a=before, b=context.columns))
    for condition in steps:
        seen = ops.mul(a=seen, b=as_float(ops, condition))
    return seen


def _attend(ops: Ops, q: Value, context: Context, seen: Value, how: Scores) -> Value:
    """q [B, H, t, D], seen [B, 1, t, W] -> [B, H, t, E], float32.

    Grouped: the H / G heads that read one KV head share its product.
    """
    batch, heads, size, dim = q.shape
    products = context.keys.shape[0]
    rows = q.reshape(products, batch * heads * size // products, dim)
    scores = ops.batched_matmul(a=rows, b=context.keys, transpose_b=True)
    scores = ops.mul(a=scores, b=number(ops, how.scale))
    if how.softcap > 0:
        scores = ops.softcap(x=scores, cap=how.softcap)
    scores = scores.reshape(batch, heads, size, context.width)
    weights, total = _weights(ops, scores, seen, how.sinks)
    weights = weights.reshape(products, rows.shape[1], context.width)
    mixed = ops.batched_matmul(a=weights, b=context.values, transpose_b=False)
    y: Value = ops.div(a=mixed.reshape(batch, heads, size, mixed.shape[2]), b=total)
    return y


def _weights(ops: Ops, scores: Value, seen: Value, sinks: Value | None) -> tuple[Value, Value]:
    """Unnormalized weights and their sum, at least 1: the largest weight, or the sink's, is
    exactly 1. sinks: [H]."""
    visible = ops.lt(a=number(ops, 0), b=seen)
    masked = ops.where(condition=visible, a=scores, b=number(ops, LOWEST))
    top, sink = ops.reduce_max(x=masked), None
    if sinks is not None:
        sink = sinks.reshape(1, scores.shape[1], 1, 1)
        top = ops.maximum(a=top, b=sink)
    weights = ops.mul(a=ops.exp(x=ops.sub(a=masked, b=top)), b=seen)
    total = ops.reduce_sum(x=weights)
    if sink is not None:
        total = ops.add(a=total, b=ops.exp(x=ops.sub(a=sink, b=top)))
    return weights, ops.maximum(a=total, b=number(ops, 1))
