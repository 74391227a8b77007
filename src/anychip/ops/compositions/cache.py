"""Recipes of what changes a cache: keys and values into slots, pages onto pages."""

from __future__ import annotations

from anychip.ops.compositions.api import Cache, Ops, Value
from anychip.ops.compositions.elements import cast


def kv_write(ops: Ops, *, cache: Cache, k: Value, v: Value, slots: Value) -> None:
    """Scatter the rows over the slots of all pages."""
    for pages, rows in ((cache.k, k), (cache.v, v)):
        count, size, heads, dim = pages.shape
        target = pages.reshape(count * size, heads, dim)
        ops.scatter_rows(target=target, source=cast(ops, rows, target.dtype), index=slots)


def latent_write(ops: Ops, *, cache: Cache, latent: Value, slots: Value) -> None:
    """Scatter the rows; the values are a part of them."""
    count, size, _, dim = cache.k.shape
    target = cache.k.reshape(count * size, dim)
    ops.scatter_rows(target=target, source=cast(ops, latent, target.dtype), index=slots)


def kv_copy_pages(ops: Ops, *, cache: Cache, sources: Value, targets: Value) -> None:
    """Gather whole pages, scatter them, whatever the layout inside of them."""
    for pages in (cache.k,) if cache.latent else (cache.k, cache.v):
        held = pages if pages.is_contiguous else pages.transpose(0, 2, 1, 3)
        count, *inner = held.shape
        flat = held.reshape(count, inner[0] * inner[1] * inner[2])
        rows = ops.gather_rows(table=flat, index=sources)
        ops.scatter_rows(target=flat, source=rows, index=targets)
