"""O9, second half: caches and tables of more than 2**31 elements, only the used pages touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from anychip.conform.operator_given import NotCovered, run_given
from anychip.conform.operator_offsets import (
    FAR,
    ROWS_APART,
    Judge,
    each_far,
    huge,
    narrowest,
    put_rows,
    rows_apart,
)
from anychip.conform.proof import Proof
from anychip.conform.subject import Subject
from anychip.contract.cache import KNOWN_LAYOUTS, CacheGroup, CacheSpec, CacheView
from anychip.contract.dtype import DType
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor, TensorSpec
from anychip.contract.weights import HostWeight, Weight, WeightSpec, WeightUse
from anychip.hostops import NUMPY_DTYPES
from anychip.ops import permuted
from anychip.ops.cases import Case
from anychip.ops.cases.draw import draw
from anychip.ops.check import check_case
from anychip.ops.limits import limit
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.arrays import Array
from anychip.ops.placed import OpaqueCache, host_bytes

KV_HEADS, DIM, COLUMNS = 2, 64, 64
NEAR = 1


def far_offsets(op: str) -> Callable[[Subject], Proof]:
    """O9 of one operator: rows far apart, and a cache or table that reaches as far."""
    judges = ([rows_apart(op)] if op in ROWS_APART else []) + ([JUDGES[op]] if op in JUDGES else [])

    def both(chip: Chip, implementation: Implementation) -> str | None:
        problems = (judge(chip, implementation) for judge in judges)
        return next((p for p in problems if p is not None), None)

    return lambda subject: each_far(subject, op, both)


@contextmanager
def far_cache(chip: Chip) -> Iterator[tuple[CacheView, int]]:
    """A cache whose last page but one lies beyond 2**31 elements; that page's number.

    Keys and values share one buffer, values one page behind: pages that are used lie two apart.
    Raises TooLarge, OpaqueCache.
    """
    facts = chip.capabilities()
    if facts.cache_layout not in KNOWN_LAYOUTS:
        raise OpaqueCache(f"a cache in layout {facts.cache_layout} cannot be filled page by page")
    plain = [d for d in facts.cache_dtypes if not d.is_scaled]
    dtype = min(plain, key=lambda d: d.itemsize)
    size = facts.page_sizes[0]
    group = CacheGroup(1, KV_HEADS, DIM, dtype, size, facts.cache_layout)
    page = size * KV_HEADS * DIM
    spec = CacheSpec(group, FAR // page + 3)
    with huge(chip, TensorSpec((spec.pages + 1, *spec.shape[1:]), dtype)) as both:
        yield (
            CacheView(
                spec,
                both.view(spec.shape, spec.strides),
                both.view(spec.shape, spec.strides, offset=page),
            ),
            (spec.pages - 2),
        )


def _pages(chip: Chip, half: Tensor, pages: list[int]) -> Array:
    """Some pages, copied out."""
    inner = half.shape[1:], half.strides[1:]
    views = [half.view(*inner, offset=number * half.strides[0]) for number in pages]
    return np.stack([permuted.read(chip.memory, view) for view in views])


def _fill(chip: Chip, view: CacheView, pages: list[int]) -> CacheArrays:
    """Random contents in some pages; what they are, in that order."""
    source, dtype = draw("far"), NUMPY_DTYPES[view.spec.group.dtype]
    shape = (len(pages), *view.spec.shape[1:])
    k, v = (source.normal(*shape).astype(dtype) for _ in range(2))
    for half, values in ((view.k, k), (view.v, v)):
        put_rows(chip, half, dict(zip(pages, values, strict=True)))
    return CacheArrays(k, v)


def _same(chip: Chip, view: CacheView, pages: list[int], expected: CacheArrays) -> bool:
    pairs = ((view.k, expected.k), (view.v, expected.v))
    return all(_pages(chip, half, pages).tobytes() == want.tobytes() for half, want in pairs)


def _kv_write(chip: Chip, implementation: Implementation) -> str | None:
    with far_cache(chip) as (view, far):
        size, pages = view.spec.group.page_size, [NEAR, far]
        expected = _fill(chip, view, pages)
        dtype = NUMPY_DTYPES[narrowest(chip, "kv_write").activation]
        source = draw("far rows")
        k, v = (source.normal(2, KV_HEADS, DIM).astype(dtype) for _ in range(2))
        slots = np.array([far * size + size - 1, NEAR * size], np.int32)
        inputs = {"cache": view, "k": k, "v": v, "slots": slots}
        run_given(chip, "kv_write", inputs, {}, implementation)
        for half, rows in ((expected.k, k), (expected.v, v)):
            half[1, size - 1], half[0, 0] = rows.astype(half.dtype)
        if not _same(chip, view, pages, expected):
            return f"slots {slots.tolist()} of {view.spec.pages:,} pages were not written alone"
    return None


def _kv_copy_pages(chip: Chip, implementation: Implementation) -> str | None:
    with far_cache(chip) as (view, far):
        filled = _fill(chip, view, [NEAR])
        for source, target in ((NEAR, far), (far, NEAR + 4)):
            pages = {
                "sources": np.array([source], np.int32),
                "targets": np.array([target], np.int32),
            }
            run_given(chip, "kv_copy_pages", {"cache": view, **pages}, {}, implementation)
            if not _same(chip, view, [target], filled):
                return f"page {source:,} did not arrive at page {target:,}"
    return None


def _paged_attention(chip: Chip, implementation: Implementation) -> str | None:
    with far_cache(chip) as (view, far):
        size, activation = view.spec.group.page_size, narrowest(chip, "paged_attention").activation
        cache = _fill(chip, view, [NEAR, far])
        q = draw("far queries").normal(2, 2 * KV_HEADS, DIM).astype(NUMPY_DTYPES[activation])
        inputs = {
            "q": q,
            "cu_q": np.array([0, 2], np.int32),
            "kv_lens": np.array([size + 1], np.int32),
            "positions": np.array([size - 1, size], np.int32),
            "token_rows": np.zeros(2, np.int32),
        }
        table = np.array([[far, NEAR]], np.int32)
        attrs = {"scale": 0.25}
        given = {**inputs, "cache": view, "page_table": table}
        found = run_given(chip, "paged_attention", given, attrs, implementation)
        near = {**inputs, "cache": cache, "page_table": np.array([[1, 0]], np.int32)}
        case = Case("paged_attention", "", near, attrs, None, activation)
        bound = limit(case.op, near, activation) * implementation.tolerance
        verdict = check_case(case, found, bound=bound)
    return None if verdict.ok else f"over page {far:,}: {verdict.text}"


def _gather_rows(chip: Chip, implementation: Implementation) -> str | None:
    dtype = narrowest(chip, "gather_rows").activation
    with _far_table(chip, dtype) as (table, index, rows):
        inputs = {"table": table, "index": index}
        found = run_given(chip, "gather_rows", inputs, {}, implementation)["y"]
    return None if found.tobytes() == rows.tobytes() else _wrong_rows(index)


def _embedding(chip: Chip, implementation: Implementation) -> str | None:
    types = narrowest(chip, "embedding")
    spec = _plain_table(chip, types.weight)
    with _far_table(chip, types.weight) as (table, tokens, rows):
        weight = Weight(WeightSpec(spec.format, table.shape, table.nbytes, True), (table,), table)
        attrs = {"dtype": types.activation.value}
        inputs = {"tokens": tokens, "table": weight}
        found = run_given(chip, "embedding", inputs, attrs, implementation)["y"]
    wanted = rows.astype(NUMPY_DTYPES[types.activation])
    return None if found.tobytes() == wanted.tobytes() else _wrong_rows(tokens)


def _wrong_rows(index: Array) -> str:
    return f"rows {index.tolist()} of the table did not arrive as they are"


@contextmanager
def _far_table(chip: Chip, dtype: DType) -> Iterator[tuple[Tensor, Array, Array]]:
    """A table beyond 2**31 elements, indices into it, and the rows that they name."""
    last = FAR // COLUMNS + 1
    index = np.array([last, 0, last - 1, 1], np.int32)
    rows = draw("far table").normal(len(index), COLUMNS).astype(NUMPY_DTYPES[dtype])
    with huge(chip, TensorSpec((last + 1, COLUMNS), dtype)) as table:
        put_rows(chip, table, dict(zip(index.tolist(), rows, strict=True)))
        yield table, index, rows


def _plain_table(chip: Chip, dtype: DType) -> WeightSpec:
    """What a small table of lookups is packed as, where that is one plain tensor and no more:
    then a table can be made without packing gigabytes. Raises NotCovered."""
    small = np.zeros((2, COLUMNS), NUMPY_DTYPES[dtype])
    part = HostWeight(dtype.value, small.shape, host_bytes(small))
    weight = chip.weights.prepare((part,), frozenset({WeightUse.EMBEDDING}))
    plain = weight.tensors == (weight.dense,) and weight.spec.format == dtype.value
    chip.weights.release(weight)
    if not plain:
        raise NotCovered("a packed table of gigabytes would have to be made whole to be looked at")
    return weight.spec


JUDGES: dict[str, Judge] = {
    "kv_write": _kv_write,
    "kv_copy_pages": _kv_copy_pages,
    "paged_attention": _paged_attention,
    "gather_rows": _gather_rows,
    "embedding": _embedding,
}
OFFSETS = (*dict.fromkeys((*ROWS_APART, *JUDGES)),)
"""Operators that O9 asks about."""
