"""O4: what `kv_write` and `kv_copy_pages` put into a cache is what `paged_attention` reads.

Nothing is assumed about the layout: a cache is filled by the chip's own `kv_write` and read by
its own `paged_attention`. In a known layout every byte is looked at as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from anychip.conform.operator_given import NotCovered, computed_by, run_given
from anychip.conform.proof import Proof, failed, inconclusive, passed
from anychip.conform.subject import Subject
from anychip.contract.cache import KNOWN_LAYOUTS, CacheGroup, CacheView
from anychip.contract.dtype import DType
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.hostops import NUMPY_DTYPES
from anychip.ops import permuted
from anychip.ops.cases import Case
from anychip.ops.cases.draw import draw
from anychip.ops.check import check_case
from anychip.ops.limits import limit
from anychip.ops.oracle import CacheArrays, evaluate
from anychip.ops.oracle.arrays import Array
from anychip.run.cache import allocate_cache, free_cache

PAGES = 5
DIM = 64
HEADS = ((3, 1), (4, 2))
"""(query heads, KV heads), in turn over page sizes and dtypes."""
ATTENDS = {"one position": {"scale": 4.0, "window": 1}, "all positions": {"scale": 0.25}}
"""Each value alone, for the values; weights that depend on every key, for the keys."""


@dataclass(frozen=True)
class Trio:
    """Who writes, copies and reads."""

    write: Implementation
    copy: Implementation
    read: Implementation

    def __str__(self) -> str:
        return f"{self.write.id}, {self.copy.id}, {self.read.id}"


@dataclass
class Held:
    """A cache on the chip, and what must be in it. step: tokens of one call at most."""

    chip: Chip
    view: CacheView
    arrays: CacheArrays
    heads: int
    activation: DType
    step: int

    def slots(self) -> Array:
        """Every slot."""
        return np.arange(self.arrays.k[..., 0, 0].size, dtype=np.int32)


def written_is_read(subject: Subject) -> Proof:
    """O4."""
    chip, seen, gaps = subject.chip, 0, list[str]()
    facts = chip.capabilities()
    with ExitStack() as stack:
        trios = _trios(chip, stack)
        kinds = list(product(facts.page_sizes, facts.cache_dtypes))
        for trio, (number, (size, dtype)) in product(trios, enumerate(kinds)):
            heads = HEADS[number % len(HEADS)]
            where = f"{trio}, page size {size}, cache {dtype.value}, {heads[1]} KV heads"
            try:
                problem = _problem(chip, trio, _group(chip, size, dtype, heads[1]), heads[0])
            except NotCovered as error:
                gaps.append(f"{where}: {error}")
                continue
            if problem is not None:
                return failed(f"{where}: {problem}")
            seen += 1
    if not seen:
        return inconclusive(gaps[0])
    note = f"; {len(gaps)} not covered: {gaps[0]}" if gaps else ""
    return passed(f"{seen} combinations of page size, cache dtype and heads{note}", caches=seen)


def _trios(chip: Chip, stack: ExitStack) -> list[Trio]:
    """Every implementation at least once, beside the preferred ones of the other operators."""
    ops = ("kv_write", "kv_copy_pages", "paged_attention")
    writers, copiers, readers = (computed_by(chip, op, stack) for op in ops)
    first = Trio(writers[0], copiers[0], readers[0])
    return [
        first,
        *(replace(first, write=one) for one in writers[1:]),
        *(replace(first, copy=one) for one in copiers[1:]),
        *(replace(first, read=one) for one in readers[1:]),
    ]


def _group(chip: Chip, size: int, dtype: DType, kv_heads: int) -> CacheGroup:
    return CacheGroup(1, kv_heads, DIM, dtype, size, chip.capabilities().cache_layout)


def _problem(chip: Chip, trio: Trio, group: CacheGroup, heads: int) -> str | None:
    """What is wrong with one kind of cache, in the first activation dtype that is covered."""
    *others, last = chip.capabilities().activation_dtypes
    for activation in others:
        try:
            return _in_dtype(chip, trio, group, (heads, activation))
        except NotCovered:
            continue
    return _in_dtype(chip, trio, group, (heads, last))


def _in_dtype(chip: Chip, trio: Trio, group: CacheGroup, asked: tuple[int, DType]) -> str | None:
    with _cache(chip, group, *asked) as held:
        steps = (_fill(held, trio), _scatter(held, trio), _copy_pages(held, trio))
        for step in steps:
            for what in step:
                problem = _differs(held, trio.read)
                if problem is not None:
                    return f"{what}: {problem}"
    return None


@contextmanager
def _cache(chip: Chip, group: CacheGroup, heads: int, activation: DType) -> Iterator[Held]:
    """A cache, zeroed where the host may write it."""
    views = allocate_cache(chip.memory, group, PAGES)
    try:
        shape = views[0].spec.shape
        k, v = (np.zeros(shape, NUMPY_DTYPES[group.dtype]) for _ in range(2))
        limits = chip.capabilities().max_tokens
        arrays = CacheArrays(k, v)
        if group.layout in KNOWN_LAYOUTS:
            for tensor, half in ((views[0].k, arrays.k), (views[0].v, arrays.v)):
                permuted.write(chip.memory, tensor, half)
        yield Held(chip, views[0], arrays, heads, activation, limits or 1 << 20)
    finally:
        free_cache(chip.memory, views)


def _fill(held: Held, trio: Trio) -> Iterator[str]:
    _write(held, trio.write, held.slots())
    yield "every slot written in order"


def _scatter(held: Held, trio: Trio) -> Iterator[str]:
    slots = draw("scattered").distinct(7, high=len(held.slots()))
    _write(held, trio.write, np.where(np.arange(len(slots)) == 2, -1, slots).astype(np.int32))
    yield "scattered slots written, one skipped"


def _copy_pages(held: Held, trio: Trio) -> Iterator[str]:
    pages = {"sources": np.array([3, 1], np.int32), "targets": np.array([2, 4], np.int32)}
    run_given(held.chip, "kv_copy_pages", {"cache": held.view, **pages}, {}, trio.copy)
    expected = evaluate("kv_copy_pages", {"cache": held.arrays, **pages}, {}).written["cache"]
    assert isinstance(expected, CacheArrays)
    held.arrays = expected
    yield "pages 3 and 1 copied to 2 and 4"


def _write(held: Held, writer: Implementation, slots: Array) -> None:
    """New keys and values at these slots, on the chip and in what must be there."""
    source = draw(f"{len(slots)} of {held.view.spec.shape}")
    group, dtype = held.view.spec.group, NUMPY_DTYPES[held.activation]
    for start in range(0, len(slots), held.step):
        part = slots[start : start + held.step]
        shape = (len(part), group.kv_heads, group.head_dim)
        rows = {n: source.normal(*shape).astype(dtype) for n in ("k", "v")}
        inputs = {**rows, "slots": part}
        run_given(held.chip, "kv_write", {"cache": held.view, **inputs}, {}, writer)
        expected = evaluate("kv_write", {"cache": held.arrays, **inputs}, {}).written["cache"]
        assert isinstance(expected, CacheArrays)
        held.arrays = expected


def _differs(held: Held, reader: Implementation) -> str | None:
    """How the cache differs from what must be in it."""
    if held.view.spec.group.layout in KNOWN_LAYOUTS:
        for name in ("k", "v"):
            wrong = _wrong_slots(held, name)
            if wrong:
                return f"'{name}' is wrong in {len(wrong)} slots, the first is slot {wrong[0]}"
    for what, attrs in ATTENDS.items():
        for batch in _batches(held):
            problem = _misread(held, reader, batch, attrs)
            if problem is not None:
                return f"attention over {what}: {problem}"
    return None


def _wrong_slots(held: Held, name: str) -> list[int]:
    """Slots whose bytes differ, read directly."""
    tensor: Tensor = getattr(held.view, name)
    expected: Array = getattr(held.arrays, name)
    found = permuted.read(held.chip.memory, tensor)
    pair = (a.view(np.uint8).reshape(len(held.slots()), -1) for a in (expected, found))
    return [int(s) for s in np.flatnonzero(np.not_equal(*pair).any(axis=1))]


def _batches(held: Held) -> Iterator[dict[str, Any]]:
    """One row a page, one query a slot; as many pages as a call may have tokens."""
    size, pages = held.arrays.page_size, len(held.arrays.k)
    together = max(1, min(held.step // size, pages))
    for first in range(0, pages, together):
        rows = np.arange(first, min(first + together, pages), dtype=np.int32)
        count = len(rows)
        yield {
            "page_table": rows[:, None],
            "cu_q": np.arange(count + 1, dtype=np.int32) * np.int32(size),
            "kv_lens": np.full(count, size, np.int32),
            "positions": np.tile(np.arange(size, dtype=np.int32), count),
            "token_rows": np.repeat(np.arange(count, dtype=np.int32), size),
        }


def _misread(
    held: Held, reader: Implementation, batch: dict[str, Any], attrs: dict[str, Any]
) -> str | None:
    """What attention gets wrong, within the limit that holds for any arithmetic."""
    q = draw("queries").normal(len(batch["positions"]), held.heads, DIM)
    inputs = {"q": q.astype(NUMPY_DTYPES[held.activation]), **batch}
    over = {**inputs, "cache": held.view}
    found = run_given(held.chip, "paged_attention", over, attrs, reader)
    case = Case(
        "paged_attention", "", {**inputs, "cache": held.arrays}, attrs, None, held.activation
    )
    bound = limit(case.op, case.inputs, held.activation) * reader.tolerance
    verdict = check_case(case, found, bound=bound)
    return None if verdict.ok else verdict.text
