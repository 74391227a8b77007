"""O4: what is written and copied into a cache is what attention over it reads.

Nothing is assumed about the layout: a cache is filled by the chip's own `kv_write` and read by
its own `paged_attention`, a latent one by `latent_write` and `latent_attention`. In a known layout
every byte is looked at as well.
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
from anychip.ops.oracle import CacheArrays, evaluate, latent_arrays
from anychip.ops.oracle.arrays import Array
from anychip.ops.recipe import Recipe
from anychip.run.cache import allocate_cache, free_cache

PAGES = 5
DIM = 64
HEADS = ((3, 1), (4, 2))
"""(query heads, KV heads), in turn over page sizes and dtypes."""
ATTENDS = {"one position": {"scale": 4.0, "window": 1}, "all positions": {"scale": 0.25}}
"""Each value alone, for the values; weights that depend on every key, for the keys."""


@dataclass(frozen=True)
class Kind:
    """A kind of cache: the operators that write and read it, and its heads in turn.

    rows: what the writer is given beside slots. latent: see CacheGroup.
    """

    write: str
    read: str
    rows: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    latent: int = 0

    @property
    def more(self) -> dict[str, int]:
        """Attributes of the reader beside those of every attention."""
        return {"value_dim": self.latent} if self.latent else {}


KINDS = (
    Kind("kv_write", "paged_attention", ("k", "v"), HEADS),
    Kind("latent_write", "latent_attention", ("latent",), ((3, 1),), latent=48),
)


@dataclass(frozen=True)
class Trio:
    """Who writes, copies and reads a kind of cache."""

    kind: Kind
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
    kind: Kind

    def slots(self) -> Array:
        """Every slot."""
        return np.arange(self.arrays.k[..., 0, 0].size, dtype=np.int32)


def written_is_read(subject: Subject) -> Proof:
    """O4."""
    chip, seen, gaps = subject.chip, 0, list[str]()
    for trio, heads, group in _asked(chip):
        size, dtype = group.page_size, group.dtype.value
        where = f"{trio}, page size {size}, cache {dtype}, {group.kv_heads} KV heads"
        try:
            problem = _problem(chip, trio, group, heads)
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


def _asked(chip: Chip) -> Iterator[tuple[Trio, int, CacheGroup]]:
    """Who computes, query heads, and the cache; the scratch of recipes is freed kind by kind."""
    facts = chip.capabilities()
    sizes = list(product(facts.page_sizes, facts.cache_dtypes))
    for kind in KINDS:
        with ExitStack() as stack:
            for trio, (number, (size, dtype)) in product(
                _trios(chip, kind, stack), enumerate(sizes)
            ):
                heads, kv_heads = kind.heads[number % len(kind.heads)]
                given = (1, kv_heads, DIM, dtype, size, facts.cache_layout, kind.latent)
                yield trio, heads, CacheGroup(*given)


def _trios(chip: Chip, kind: Kind, stack: ExitStack) -> list[Trio]:
    """Every implementation at least once, beside the preferred ones of the other operators."""
    ops = (kind.write, "kv_copy_pages", kind.read)
    writers, copiers, readers = (computed_by(chip, op, stack) for op in ops)
    if kind.latent:  # an older implementation leaves such pages to the recipe
        recipe = Recipe(chip, "kv_copy_pages")
        copiers = tuple(c for c in copiers if c.latent) or (stack.enter_context(recipe),)
    first = Trio(kind, writers[0], copiers[0], readers[0])
    return [
        first,
        *(replace(first, write=one) for one in writers[1:]),
        *(replace(first, copy=one) for one in copiers[1:]),
        *(replace(first, read=one) for one in readers[1:]),
    ]


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
    with _cache(chip, trio.kind, group, asked) as held:
        steps = (_fill(held, trio), _scatter(held, trio), _copy_pages(held, trio))
        for step in steps:
            for what in step:
                problem = _differs(held, trio.read)
                if problem is not None:
                    return f"{what}: {problem}"
    return None


@contextmanager
def _cache(chip: Chip, kind: Kind, group: CacheGroup, asked: tuple[int, DType]) -> Iterator[Held]:
    """A cache, zeroed where the host may write it. asked: query heads, dtype of activations."""
    views = allocate_cache(chip.memory, group, PAGES)
    try:
        shape = views[0].spec.shape
        k, v = (np.zeros(shape, NUMPY_DTYPES[group.dtype]) for _ in range(2))
        limits = chip.capabilities().max_tokens
        arrays = latent_arrays(k, kind.latent) if kind.latent else CacheArrays(k, v)
        if group.layout in KNOWN_LAYOUTS:
            for tensor in views[0].halves:
                permuted.write(chip.memory, tensor, k)
        yield Held(chip, views[0], arrays, *asked, limits or 1 << 20, kind)
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
        heads = () if held.kind.latent else (group.kv_heads,)
        shape = (len(part), *heads, group.head_dim)
        rows = {n: source.normal(*shape).astype(dtype) for n in held.kind.rows}
        inputs, op = {**rows, "slots": part}, held.kind.write
        run_given(held.chip, op, {"cache": held.view, **inputs}, {}, writer)
        expected = evaluate(op, {"cache": held.arrays, **inputs}, {}).written["cache"]
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
            problem = _misread(held, reader, batch, {**attrs, **held.kind.more})
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
    found = run_given(held.chip, held.kind.read, over, attrs, reader)
    given = {**inputs, "cache": held.arrays}
    case = Case(held.kind.read, "", given, attrs, None, held.activation)
    bound = limit(case.op, case.inputs, held.activation) * reader.tolerance
    verdict = check_case(case, found, bound=bound)
    return None if verdict.ok else verdict.text
