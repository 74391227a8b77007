"""Cases of the cache and of attention over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, apart, changed, draw, scaled
from anychip.ops.oracle.arrays import Array, CacheArrays


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads, head dim."""

    query: int
    kv: int
    dim: int


@dataclass(frozen=True)
class Ragged:
    """A batch: per row how many tokens it brings and how many its cache then holds.

    spare: columns of the page table beyond the longest row; they name page 0.
    """

    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    page_size: int
    spare: int = 0

    @property
    def pages(self) -> int:
        """Pages that the rows use, page 0 and one neighbour included."""
        return 2 + sum(-(-n // self.page_size) for n in self.lengths)


def batch_of(source: Draw, ragged: Ragged) -> dict[str, Any]:
    """Index arguments of attention: rows own shuffled pages, none of them page 0."""
    size, lengths = ragged.page_size, ragged.lengths
    counts = [-(-n // size) for n in lengths]
    order = source.distinct(ragged.pages - 1, high=ragged.pages - 1) + 1
    table = np.zeros((len(lengths), max([*counts, 1]) + ragged.spare), dtype=np.int32)
    start = 0
    for b, count in enumerate(counts):
        table[b, :count] = order[start : start + count]
        start += count
    spans = zip(ragged.tokens, lengths, strict=True)
    positions = [np.arange(n - t, n) for t, n in spans]
    return {
        "page_table": table,
        "cu_q": np.cumsum([0, *ragged.tokens]).astype(np.int32),
        "kv_lens": np.array(lengths, dtype=np.int32),
        "positions": np.concatenate(positions).astype(np.int32),
        "token_rows": np.repeat(np.arange(len(lengths)), ragged.tokens).astype(np.int32),
    }


def cache_of(source: Draw, pages: int, page_size: int, heads: Heads) -> CacheArrays:
    """Random keys and values."""
    shape = (pages, page_size, heads.kv, heads.dim)
    return CacheArrays(source.normal(*shape), source.normal(*shape))


def slots_of(batch: dict[str, Any], page_size: int) -> Array:
    """The slot of every token of a batch."""
    pages = batch["page_table"][batch["token_rows"], batch["positions"] // page_size]
    slots: Array = (pages * page_size + batch["positions"] % page_size).astype(np.int32)
    return slots


def attention_inputs(source: Draw, ragged: Ragged, heads: Heads) -> dict[str, Any]:
    """Queries, a cache that the batch has filled, the batch's indices."""
    batch = batch_of(source, ragged)
    cache = cache_of(source, ragged.pages, ragged.page_size, heads)
    tokens = sum(ragged.tokens)
    return {"q": source.normal(tokens, heads.query, heads.dim), "cache": cache, **batch}


@dataclass(frozen=True)
class Form:
    """A form of attention over a cache. inputs: all arguments for a batch and its heads. attrs:
    beside those of every attention. wrong: a change that shows in any of its calls."""

    inputs: Callable[[Draw, Ragged, Heads], dict[str, Any]]
    attrs: Callable[[Heads], dict[str, Any]]
    wrong: Callable[[dict[str, Any]], Control]


def _values_negated(inputs: dict[str, Any]) -> Control:
    cache = inputs["cache"]
    return Control("values negated", {"cache": CacheArrays(cache.k, -cache.v)})


PAGED = Form(attention_inputs, lambda heads: {}, _values_negated)


def _unwritten(inputs: dict[str, Any]) -> dict[str, Any]:
    """NaN in page 0 and in every slot past a row's length: never read by a right kernel."""
    cache = inputs["cache"]
    written = np.zeros(cache.k.shape[:2], dtype=bool)
    for table, length in zip(inputs["page_table"], inputs["kv_lens"], strict=True):
        j = np.arange(length)
        written[table[j // cache.page_size], j % cache.page_size] = True
    mask = written[..., None, None]
    hidden = cache.mapped(lambda half: np.where(mask, half, np.float32(np.nan)))
    return {**inputs, "cache": hidden}


def attention_cases(op: str, form: Form) -> list[Case]:
    """Prefill, decode, chunks and mixtures; page sizes; grouped heads; every attribute."""
    source = draw(op)
    cases = []
    for name, ragged, heads in (
        ("no tokens", Ragged((0,), (5,), 4), Heads(2, 1, 8)),
        ("one token", Ragged((1,), (1,), 1), Heads(1, 1, 1)),
        ("decode", Ragged((1, 1, 1), (1, 17, 40), 16, 2), Heads(9, 3, 64)),
        ("prefill", Ragged((33,), (33,), 16), Heads(4, 4, 32)),
        ("chunk", Ragged((5,), (21,), 1), Heads(4, 2, 16)),
        ("mixture", Ragged((1, 7, 0, 16), (31, 7, 3, 64), 8, 1), Heads(6, 2, 20)),
        ("page borders", Ragged((4, 4, 4), (15, 16, 17), 16), Heads(2, 2, 8)),
    ):
        inputs = form.inputs(source, ragged, heads)
        control = form.wrong(inputs) if len(inputs["q"]) else None
        attrs = {"scale": heads.dim**-0.5, **form.attrs(heads)}
        cases.append(Case(op, name, inputs, attrs, control))
    return cases + _attributes(op, form, source)


def paged_attention(op: str) -> list[Case]:
    """The cases of attention over keys and values."""
    return attention_cases(op, PAGED)


def _attributes(op: str, form: Form, source: Draw) -> list[Case]:
    ragged, heads = Ragged((9, 1), (30, 21), 4, 1), Heads(4, 2, 16)
    inputs = form.inputs(source, ragged, heads)
    base = {"scale": 0.25, **form.attrs(heads)}
    capped = {**base, "scale": 1.0, "softcap": 2.0}
    blind = {**inputs, "kv_lens": np.array([30, 0], dtype=np.int32)}
    wrong, uncapped = form.wrong(inputs), changed("softcap", 0.0)
    hidden = _unwritten(inputs)
    decode = form.inputs(source, Ragged((1, 1), (30, 21), 4, 1), heads)
    return [
        Case(op, "scale", inputs, base, changed("scale", 0.5)),
        Case(op, "not causal", inputs, {**base, "causal": False}, changed("causal", True)),
        Case(op, "window 1", inputs, {**base, "window": 1}, changed("window", 2)),
        Case(op, "window 8", inputs, {**base, "window": 8}, changed("window", 7)),
        Case(op, "softcap", inputs, capped, uncapped),
        Case(op, "a row sees nothing", blind, base, wrong),
        Case(op, "unwritten slots are NaN", hidden, base, changed("scale", 0.5)),
        Case(op, "rows apart", {**inputs, "q": apart(inputs["q"], 64)}, base, scaled(inputs, "q")),
        # One token a row: a kernel of its own on most chips, with options of its own.
        Case(op, "decode, scale", decode, base, changed("scale", 0.5)),
        Case(op, "decode, window 8", decode, {**base, "window": 8}, changed("window", 0)),
        Case(op, "decode, softcap", decode, capped, uncapped),
    ]


def kv_write(op: str) -> list[Case]:
    """Scattered slots, skipped tokens, one KV head, rows apart."""
    source = draw(op)
    cases = []
    for name, tokens, page_size, heads, gap in (
        ("no tokens", 0, 4, Heads(1, 1, 8), 0),
        ("one token", 1, 1, Heads(1, 1, 1), 0),
        ("scattered", 7, 4, Heads(1, 3, 64), 0),
        ("rows apart", 5, 16, Heads(1, 2, 20), 40),
    ):
        cache = cache_of(source, 5, page_size, heads)
        slots = source.distinct(tokens, high=5 * page_size)
        slots[2:3] = -1
        k, v = (
            source.normal(tokens, heads.kv, heads.dim),
            source.normal(tokens, heads.kv, heads.dim),
        )
        inputs = {"cache": cache, "k": apart(k, gap), "v": apart(v, gap), "slots": slots}
        cases.append(Case(op, name, inputs, {}, scaled(inputs, "v") if tokens else None))
    return cases


def kv_copy_pages(op: str) -> list[Case]:
    """No page, one, several."""
    source = draw(op)
    cases = []
    for count, page_size in ((0, 4), (1, 1), (3, 16)):
        cache = cache_of(source, 8, page_size, Heads(1, 2, 8))
        order = source.distinct(2 * count, high=8)
        inputs = {"cache": cache, "sources": order[:count], "targets": order[count:]}
        swapped = {"sources": inputs["targets"], "targets": inputs["sources"]}
        control = Control("sources and targets exchanged", swapped) if count else None
        cases.append(Case(op, f"{count} of size {page_size}", inputs, {}, control))
    return cases


ATTENTION: dict[str, Callable[[str], list[Case]]] = {
    "kv_write": kv_write,
    "paged_attention": paged_attention,
}
