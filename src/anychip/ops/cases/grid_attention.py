"""Sized cases of the cache, of attention over it and of the fused blocks."""

from __future__ import annotations

from typing import Any

from anychip.ops.cases.attention import Heads, Ragged, attention_inputs, cache_of
from anychip.ops.cases.blocks import attention_block_inputs, mlp_inputs
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, without
from anychip.ops.cases.grid_sizes import (
    FLAG,
    ROWS,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    grown,
    require,
)
from anychip.ops.cases.latent import latent_cache, latent_size
from anychip.ops.oracle.arrays import CacheArrays

HEAD_DIMS = (1, 8, 16, 20, 64, 80, 128, 256)
_EVEN_HEAD_DIMS = HEAD_DIMS[1:]
PAGE_SIZES = (1, 2, 16, 32, 128)
_PAST = (0, 1, *(n + d for n in (16, 32, 64, 128, 256, 512, 1024) for d in (-2, -1, 0, 1)), 1099)
"""How many tokens a cache held before: with one more, both sides of a page's border."""

_TOKENS = tuple(n for n in ROWS if n not in (511, 513, 1023))
"""Scores grow with the square: fewer of the large ones."""

MANY_ROWS = (1023, 1024, 1025)
"""Where the decode kernel of a vendor ends."""

BATCH = (
    Dimension("T", 1, _TOKENS),
    Dimension("past", 20, _PAST),
    Dimension("B", 2, (1, 2, 3, 9, 33)),
    Dimension("decoding", 0, (0, 1, 3, 33)),
    Dimension("S", 16, PAGE_SIZES),
)
"""B sequences that bring T tokens each, over `past` tokens, one more in each than in the one before
it, up to 63 more; `decoding` more that bring one token each; page size S."""

GROUPED = (
    *BATCH,
    Dimension("G", 1, (1, 2, 3, 9)),
    Dimension("group", 2, (1, 2, 3, 8)),
    Dimension("D", 16, HEAD_DIMS),
)
"""Attention over keys and values."""

EXTREMES: tuple[Sizes, ...] = (
    {"T": 33, "past": 0},
    {"T": 9, "decoding": 3, "G": 3, "group": 3, "D": 64},
    {"T": 129, "past": 127, "B": 1, "S": 1},
    {"T": 1025, "past": 0, "B": 1, "G": 1, "S": 128},
    {"past": 1099, "S": 128, "G": 3, "group": 3, "D": 64},
    {"past": 0, "B": 1, "G": 1, "group": 1, "D": 1, "S": 1},
)


def ragged_of(sizes: Sizes) -> Ragged:
    """The batch that the dimensions BATCH describe."""
    tokens = [sizes["T"]] * sizes["B"] + [1] * sizes["decoding"]
    require(len(tokens) > 0, "B + decoding = 0: a batch has at least one sequence")
    lengths = (sizes["past"] + row % 64 + count for row, count in enumerate(tokens))
    return Ragged(tuple(tokens), tuple(lengths), sizes["S"], spare=1)


def heads_of(sizes: Sizes) -> Heads:
    """`group` query heads for each of G."""
    return Heads(sizes["G"] * sizes["group"], sizes["G"], sizes["D"])


def _attention(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return attention_inputs(source, ragged_of(sizes), heads_of(sizes))


def values_negated(case: Case) -> Control | None:
    """A control of attention over keys and values."""
    cache = case.inputs["cache"]
    flipped = CacheArrays(cache.k, -cache.v)
    return Control("values negated", {"cache": flipped}) if case.inputs["q"].size else None


def scale_of(sizes: Sizes) -> dict[str, Any]:
    """1 / sqrt(D)."""
    return {"scale": sizes["D"] ** -0.5}


def _kv_write(op: str, source: Draw, sizes: Sizes) -> Arrays:
    tokens, size, pages = sizes["T"], sizes["S"], sizes["P"]
    require(tokens <= pages * size, f"{op}: T = {tokens} tokens do not fit into P x S slots")
    heads = Heads(1, sizes["G"], sizes["D"])
    slots = source.distinct(tokens, high=pages * size)
    slots[1:2] = -1
    k, v = (source.normal(tokens, heads.kv, heads.dim) for _ in range(2))
    return {"cache": cache_of(source, pages, size, heads), "k": k, "v": v, "slots": slots}


def _copy_pages(op: str, source: Draw, sizes: Sizes) -> Arrays:
    count, pages = sizes["N"], sizes["P"]
    require(2 * count <= pages, f"{op}: N = {count} sources and targets need P = {2 * count} pages")
    order = source.distinct(2 * count, high=pages)
    if sizes["latent"]:
        cache = latent_cache(source, pages, sizes["S"], (sizes["D"], latent_size(sizes["D"])))
    else:
        cache = cache_of(source, pages, sizes["S"], Heads(1, sizes["G"], sizes["D"]))
    return {"cache": cache, "sources": order[:count], "targets": order[count:]}


def _copy_control(case: Case) -> Control | None:
    if case.inputs["sources"].size == 0:
        return None
    swapped = {"sources": case.inputs["targets"], "targets": case.inputs["sources"]}
    return Control("sources and targets exchanged", swapped)


def _attention_block(op: str, source: Draw, sizes: Sizes) -> Arrays:
    inputs = attention_block_inputs(source, ragged_of(sizes), heads_of(sizes), sizes["K"])
    biases = {} if sizes["bias"] else {"qkv_bias": None, "output_bias": None}
    return {**inputs, **biases, **_residual(inputs, sizes)}


def _residual(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"residual": inputs["residual"] if sizes["residual"] else None}


def _attention_attrs(sizes: Sizes) -> dict[str, Any]:
    heads = heads_of(sizes)
    return {"heads": heads.query, "eps": 1e-5, "rotary_dim": heads.dim, **scale_of(sizes)}


def _mlp_block(op: str, source: Draw, sizes: Sizes) -> Arrays:
    inputs = mlp_inputs(source, sizes["T"], sizes["K"], sizes["I"])
    if sizes["bias"]:
        inputs["gate_up_bias"] = source.normal(2 * sizes["I"], scale=0.5)
        inputs["down_bias"] = source.normal(sizes["K"], scale=0.5)
    return {**inputs, **_residual(inputs, sizes)}


def _block_control(case: Case) -> Control | None:
    if case.inputs["x"].size == 0:
        return None
    return grown("x")(case) if case.inputs["residual"] is None else without("residual")


_OPTIONS = (Dimension("bias", 1, FLAG), Dimension("residual", 1, FLAG))
_CACHE = (
    Dimension("G", 2, (1, 2, 3, 9)),
    Dimension("D", 16, HEAD_DIMS),
    Dimension("S", 16, PAGE_SIZES),
)

ATTENTION: dict[str, Family] = {
    "kv_write": Family(
        (
            Dimension("T", 3, ROWS),
            *_CACHE,
            Dimension("P", 70, (2, 3, 33)),
        ),
        _kv_write,
        grown("v"),
        crossed=({"T": 1025, "G": 3, "D": 64, "S": 32}, {"T": 1, "G": 1, "D": 1, "S": 1}),
    ),
    "kv_copy_pages": Family(
        (
            Dimension("N", 3, (0, 1, 2, 3, 8, 31, 32, 33)),
            *_CACHE,
            Dimension("P", 70, (6, 7, 257)),
            Dimension("latent", 0, FLAG),
        ),
        _copy_pages,
        _copy_control,
        crossed=(
            {"N": 128, "P": 257},
            {"N": 1, "P": 2, "G": 1, "D": 1, "S": 1},
            {"N": 33, "D": 576, "latent": 1},
        ),
    ),
    "paged_attention": Family(
        GROUPED,
        _attention,
        values_negated,
        scale_of,
        (
            *EXTREMES,
            *({"past": 0, "B": rows, "D": 64} for rows in MANY_ROWS),
        ),
    ),
    "attention_block": Family(
        (
            *BATCH,
            Dimension("K", 64, (1, 31, 32, 33, 96, 256, 576)),
            Dimension("G", 1, (1, 2, 3)),
            Dimension("group", 2, (1, 2, 3, 8)),
            Dimension("D", 16, _EVEN_HEAD_DIMS),
            *_OPTIONS,
        ),
        _attention_block,
        _block_control,
        _attention_attrs,
        (
            {"T": 33, "past": 0},
            {"T": 9, "decoding": 3, "G": 3, "group": 3, "D": 64, "K": 576},
            {"T": 1025, "past": 0, "B": 1, "G": 1},
        ),
    ),
    "mlp_block": Family(
        (
            Dimension("T", 3, ROWS),
            Dimension("K", 64, WIDTHS),
            Dimension("I", 96, WIDTHS),
            *_OPTIONS,
        ),
        _mlp_block,
        _block_control,
        lambda sizes: {"eps": 1e-5},
        (
            {"T": 1025, "K": 96, "I": 256},
            {"T": 1, "K": 576, "I": 1025},
            {"T": 1, "K": 1, "I": 1},
        ),
    ),
}
