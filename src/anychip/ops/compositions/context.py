"""The slots of a batch's sequences, gathered from the pages of a cache."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Cache, Ops, Value
from anychip.ops.compositions.elements import F32, as_float, cast, number

I32 = DType.INT32


@dataclass(frozen=True)
class Context:
    """B rows of the page table with their slots gathered: W columns each.

    keys: [B * G, W, D], values: [B * G, W, E], float32. under: [B, W], 1.0 where a column is under
    its row's length. columns: [1, W], the cache position of a column.
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


def gathered(
    ops: Ops, cache: Cache, page_table: Value, kv_lens: Value, value_dim: int = 0
) -> Context:
    """Rows of these tables and lengths. value_dim > 0: the values are that many elements of the
    keys, from the first."""
    size = cache.page_size
    batch, pages = page_table.shape
    width = pages * size
    columns = ops.arange(length=width, dtype=I32.value).reshape(1, width)
    under = ops.lt(a=columns, b=kv_lens.reshape(batch, 1))
    keys = _rows(ops, cache.k, page_table, under)
    values = keys.narrow(2, 0, value_dim) if value_dim else _rows(ops, cache.v, page_table, under)
    return Context(keys, values, as_float(ops, under), columns)


def _rows(ops: Ops, held: Value, page_table: Value, under: Value) -> Value:
    """[B * G, W, D] float32, zeros past a row's length.

    What lies there was never written: its weight will be 0, but 0 * NaN is NaN.
    """
    (batch, width), (_, _, heads, dim) = under.shape, held.shape
    take = _slots_first if held.is_contiguous else _heads_first
    condition = under.reshape(batch, 1, width, 1)
    y: Value = ops.where(condition=condition, a=take(ops, held, page_table), b=number(ops, 0))
    return y.reshape(batch * heads, width, dim)


def _slots_first(ops: Ops, held: Value, page_table: Value) -> Value:
    """[B, G, W, D] float32 of pages [P, S, G, D] in layout NHD; all heads of a slot at once."""
    (batch, pages), (count, size, heads, dim) = page_table.shape, held.shape
    first = ops.mul(a=page_table, b=number(ops, size, I32)).reshape(batch * pages, 1)
    offsets = ops.arange(length=size, dtype=I32.value).reshape(1, size)
    slots = ops.add(a=first, b=offsets).reshape(batch * pages * size)
    rows = ops.gather_rows(table=held.reshape(count * size, heads * dim), index=slots)
    rows = cast(ops, rows, F32).reshape(batch, pages * size, heads, dim)
    return rows.transpose(0, 2, 1, 3)


def _heads_first(ops: Ops, held: Value, page_table: Value) -> Value:
    """The same of pages [P, G, S, D] in memory, layout HND."""
    (batch, pages), (count, size, heads, dim) = page_table.shape, held.shape
    first = ops.mul(a=page_table, b=number(ops, heads * size, I32)).reshape(batch, 1, pages, 1)
    inside = ops.arange(length=heads * size, dtype=I32.value).reshape(1, heads, 1, size)
    index = ops.add(a=first, b=inside).reshape(batch * heads * pages * size)
    table = held.transpose(0, 2, 1, 3).reshape(count * heads * size, dim)
    rows = cast(ops, ops.gather_rows(table=table, index=index), F32)
    return rows.reshape(batch, heads, pages * size, dim)
