"""A case over a cache, with the same contents in pages of another size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anychip.ops.cases import Case, Control
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.arrays import Array

_TABLES = ("page_table", "kv_lens", "slots", "token_rows", "positions")


def repaged(case: Case, size: int) -> Case:
    """The same call over pages of `size` positions.

    Slots of a write keep their numbers, pages of `kv_copy_pages` theirs, rows of a page table get
    pages of their own. A control that moves pages is dropped.
    """
    if "page_table" in case.inputs:
        return _over_table(case, size)
    stretch = _stretched if case.op == "kv_copy_pages" else _refolded
    cache = stretch(case.inputs["cache"], size)
    return replace(case, inputs={**case.inputs, "cache": cache})


def _refolded(cache: CacheArrays, size: int) -> CacheArrays:
    """The same slots under the same numbers; new ones at the end are 0."""

    def fold(half: Array) -> Array:
        flat = half.reshape(-1, *half.shape[2:])
        rows = -(-len(flat) // size) * size
        base = np.zeros((rows, *flat.shape[1:]), half.dtype)
        base[: len(flat)] = flat
        return base.reshape(-1, size, *flat.shape[1:])

    return cache.mapped(fold)


def _stretched(cache: CacheArrays, size: int) -> CacheArrays:
    """The same number of pages, each one's contents repeated or cut."""

    def stretch(half: Array) -> Array:
        return np.stack([np.resize(page, (size, *page.shape[1:])) for page in half])

    return cache.mapped(stretch)


def _over_table(case: Case, size: int) -> Case:
    given = case.inputs
    table, homes = _homes(given["page_table"], given["kv_lens"], given["cache"].page_size, size)
    inputs = {**given, "page_table": table, "cache": _rehoused(given["cache"], homes, size)}
    if "slots" in given:
        inputs["slots"] = _slots(given, table, size)
    return replace(case, inputs=inputs, control=_control(case.control, homes, size))


def _homes(table: Array, lengths: Array, old: int, size: int) -> tuple[Array, Array]:
    """The new page table, and for each new slot the old one that it repeats (0: page 0's)."""
    counts = [-(-int(n) // size) for n in lengths]
    spare = table.shape[1] - max([-(-int(n) // old) for n in lengths] + [1])
    pages = np.zeros((len(lengths), max([*counts, 1]) + max(spare, 0)), np.int32)
    homes = np.zeros((1 + sum(counts)) * size, np.int64)
    last = sum(counts)
    for row, count in enumerate(counts):
        pages[row, :count] = np.arange(last, last - count, -1)
        last -= count
        held = np.arange(min(count * size, table.shape[1] * old))
        new = pages[row, held // size] * size + held % size
        homes[new] = np.where(
            held < int(lengths[row]) + old, table[row, held // old] * old + held % old, 0
        )
    return pages, homes


def _rehoused(cache: CacheArrays, homes: Array, size: int) -> CacheArrays:
    def rehouse(half: Array) -> Array:
        return half.reshape(-1, *half.shape[2:])[homes].reshape(-1, size, *half.shape[2:])

    return cache.mapped(rehouse)


def _slots(given: dict[str, Any] | Any, table: Array, size: int) -> Array:
    pages = table[given["token_rows"], given["positions"] // size]
    slots = pages * size + given["positions"] % size
    moved: Array = np.where(given["slots"] < 0, -1, slots).astype(np.int32)
    return moved


def _control(control: Control | None, homes: Array, size: int) -> Control | None:
    if control is None or set(control.inputs) & set(_TABLES):
        return None
    cache = control.inputs.get("cache")
    if cache is None:
        return control
    inputs = {**control.inputs, "cache": _rehoused(cache, homes, size)}
    return replace(control, inputs=inputs)
