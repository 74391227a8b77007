"""Recipes of the cache and of attention over it, for caches in layout NHD."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Cache, Ops, Value
from anychip.ops.compositions.elements import F32, as_float, cast, contiguous, join, number

TILE_BYTES = 32 << 20
"""A tile of float32 scores stays under this."""

LOWEST = -3.0e38
"""Score of what a token does not see: finite, so that no difference of two is a NaN."""


def kv_write(ops: Ops, *, cache: Cache, k: Value, v: Value, slots: Value) -> None:
    """Scatter the rows over the slots of all pages."""
    for pages, rows in ((cache.k, k), (cache.v, v)):
        count, size, heads, dim = pages.shape
        target = pages.reshape(count * size, heads, dim)
        ops.scatter_rows(target=target, source=cast(ops, rows, target.dtype), index=slots)


def kv_copy_pages(ops: Ops, *, cache: Cache, sources: Value, targets: Value) -> None:
    """Gather whole pages, scatter them."""
    for pages in (cache.k, cache.v):
        flat = pages.reshape(pages.shape[0], pages.shape[1] * pages.shape[2] * pages.shape[3])
        rows = ops.gather_rows(table=flat, index=sources)
        ops.scatter_rows(target=flat, source=rows, index=targets)


@dataclass(frozen=True)
class _Scores:
    """How scores become weights: the operator's attributes."""

    scale: float
    causal: bool
    window: int
    softcap: float


@dataclass(frozen=True)
class _Context:
    """B rows of the page table with their slots gathered: W columns each.

    keys, values: [B * G, W, D] float32. under: [B, W], 1.0 where a column is under its row's
    length. columns: [1, W], the cache position of a column.
    """

    keys: Value
    values: Value
    under: Value
    columns: Value

    @property
    def batch(self) -> int:
        """Rows."""
        return self.under.shape[0]

    @property
    def width(self) -> int:
        """Columns a row."""
        return self.under.shape[1]


def paged_attention(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    q: Value,
    cache: Cache,
    page_table: Value,
    cu_q: Value,
    kv_lens: Value,
    positions: Value,
    token_rows: Value,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
) -> Value:
    """Few tokens: each against its own row. Many: tiles of tokens against every row, one kept.

    A row is reduced over its own columns alone, what a token does not see weighs exactly zero:
    the result does not depend on what shares the batch.
    """
    how = _Scores(scale, causal, window, softcap)
    tokens, heads, dim = q.shape
    if tokens == 0:
        empty: Value = ops.fill(shape=(0, heads, dim), value=0.0, dtype=q.dtype.value)
        return empty
    if tokens <= page_table.shape[0]:
        table = ops.gather_rows(table=page_table, index=token_rows)
        lengths = ops.gather_rows(table=kv_lens, index=token_rows)
        context = _gather(ops, cache, table, lengths)
        return _each_its_row(ops, q, context, positions, how)
    context = _gather(ops, cache, page_table, kv_lens)
    step = max(1, TILE_BYTES // (F32.itemsize * heads * context.batch * max(dim, context.width)))
    tiles = []
    for start in range(0, tokens, step):
        size = min(step, tokens - start)
        tile = (v.narrow(0, start, size) for v in (token_rows, positions))
        tiles.append(_all_rows(ops, q.narrow(0, start, size), context, tuple(tile), how))
    return join(ops, tiles)


def _gather(ops: Ops, cache: Cache, page_table: Value, kv_lens: Value) -> _Context:
    size = cache.k.shape[1]
    batch, pages = page_table.shape
    width = pages * size
    first = ops.mul(a=page_table, b=number(ops, size, DType.INT32)).reshape(batch * pages, 1)
    offsets = ops.arange(length=size, dtype="int32").reshape(1, size)
    slots = ops.add(a=first, b=offsets).reshape(batch * width)
    columns = ops.arange(length=width, dtype="int32").reshape(1, width)
    under = ops.lt(a=columns, b=kv_lens.reshape(batch, 1))
    keys = _rows(ops, cache.k, slots, under)
    values = _rows(ops, cache.v, slots, under)
    return _Context(keys, values, as_float(ops, under), columns)


def _rows(ops: Ops, held: Value, slots: Value, under: Value) -> Value:
    """[B * G, W, D] float32, zeros past a row's length.

    What lies there was never written: its weight will be 0, but 0 * NaN is NaN.
    """
    count, size, kv_heads, dim = held.shape
    batch, width = under.shape
    rows = ops.gather_rows(table=held.reshape(count * size, kv_heads * dim), index=slots)
    rows = cast(ops, rows, F32).reshape(batch, width, kv_heads, dim).transpose(0, 2, 1, 3)
    condition = under.reshape(batch, 1, width, 1)
    y: Value = ops.where(condition=condition, a=rows, b=number(ops, 0))
    return y.reshape(batch * kv_heads, width, dim)


def _each_its_row(ops: Ops, q: Value, context: _Context, positions: Value, how: _Scores) -> Value:
    """q [T, H, D] -> [T, H, D]; row t of the context is token t's."""
    tokens, heads, dim = q.shape
    seen = _seen(ops, context, context.under, positions.reshape(tokens, 1), how)
    rows = contiguous(ops, cast(ops, q, F32)).reshape(tokens, heads, 1, dim)
    y = _attend(ops, rows, context, seen.reshape(tokens, 1, 1, context.width), how)
    return cast(ops, y, q.dtype).reshape(tokens, heads, dim)


def _all_rows(
    ops: Ops, q: Value, context: _Context, tile: tuple[Value, ...], how: _Scores
) -> Value:
    """q [t, H, D] -> [t, H, D]. tile: token_rows and positions, [t] each."""
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
    return cast(ops, total, q.dtype).reshape(size, heads, dim)


def _seen(ops: Ops, context: _Context, under: Value, positions: Value, how: _Scores) -> Value:
    """1.0 where a token at `positions` [t, 1] sees a column: `under` by [t, W], broadcast."""
    seen, steps = under, []
    if how.causal:
        steps.append(ops.le(a=context.columns, b=positions))
    if how.window > 0:
        before = ops.sub(a=positions, b=number(ops, how.window, DType.INT32))
        steps.append(ops.lt(a=before, b=context.columns))
    for condition in steps:
        seen = ops.mul(a=seen, b=as_float(ops, condition))
    return seen


def _attend(ops: Ops, q: Value, context: _Context, seen: Value, how: _Scores) -> Value:
    """q [B, H, t, D], seen [B, 1, t, W] -> [B, H, t, D], float32.

    Grouped: the H / G heads that read one KV head share its product.
    """
    batch, heads, size, dim = q.shape
    products = context.keys.shape[0]
    rows = q.reshape(products, batch * heads * size // products, dim)
    scores = ops.batched_matmul(a=rows, b=context.keys, transpose_b=True)
    scores = ops.mul(a=scores, b=number(ops, how.scale))
    if how.softcap > 0:
        scores = ops.softcap(x=scores, cap=how.softcap)
    weights, total = _weights(ops, scores.reshape(batch, heads, size, context.width), seen)
    weights = weights.reshape(products, rows.shape[1], context.width)
    mixed = ops.batched_matmul(a=weights, b=context.values, transpose_b=False)
    y: Value = ops.div(a=mixed.reshape(batch, heads, size, dim), b=total)
    return y


def _weights(ops: Ops, scores: Value, seen: Value) -> tuple[Value, Value]:
    """Unnormalized weights and their sum, at least 1: the largest visible weight is exactly 1."""
    visible = ops.lt(a=number(ops, 0), b=seen)
    masked = ops.where(condition=visible, a=scores, b=number(ops, LOWEST))
    shifted = ops.sub(a=masked, b=ops.reduce_max(x=masked))
    weights = ops.mul(a=ops.exp(x=shifted), b=seen)
    total = ops.maximum(a=ops.reduce_sum(x=weights), b=number(ops, 1))
    return weights, total
