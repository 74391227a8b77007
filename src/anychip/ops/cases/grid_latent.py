"""Sized cases of attention with sinks, of latent caches and of attention over them."""

from __future__ import annotations

from typing import Any

from anychip.ops.cases.attention import Heads, attention_inputs
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw
from anychip.ops.cases.grid_attention import (
    BATCH,
    EXTREMES,
    GROUPED,
    PAGE_SIZES,
    heads_of,
    ragged_of,
    scale_of,
)
from anychip.ops.cases.grid_sizes import ROWS, Arrays, Dimension, Family, Sizes, grown, require
from anychip.ops.cases.latent import (
    expanded,
    latent_cache,
    latent_size,
    latents_grown,
    sinks_raised,
    with_sinks,
)
from anychip.ops.oracle.arrays import latent_arrays

_HEADS = Dimension("H", 4, (1, 2, 3, 9, 16))
_WIDTHS = (1, 8, 12, 16, 64, 80, 128, 256, 576)


def _sinks(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return with_sinks(source, ragged_of(sizes), heads_of(sizes))


def _sinks_control(case: Case) -> Control | None:
    return sinks_raised(dict(case.inputs)) if case.inputs["q"].size else None


def _write(op: str, source: Draw, sizes: Sizes) -> Arrays:
    tokens, size, pages, width = (sizes[n] for n in "TSPD")
    require(tokens <= pages * size, f"{op}: T = {tokens} tokens do not fit into P x S slots")
    slots = source.distinct(tokens, high=pages * size)
    slots[1:2] = -1
    cache = latent_cache(source, pages, size, (width, latent_size(width)))
    return {"cache": cache, "latent": source.normal(tokens, width), "slots": slots}


def _latents(source: Draw, sizes: Sizes) -> Arrays:
    """Vectors of L, and R more that are keys alone."""
    width = sizes["L"] + sizes["R"]
    inputs = attention_inputs(source, ragged_of(sizes), Heads(sizes["H"], 1, width))
    return {**inputs, "cache": latent_arrays(inputs["cache"].k, sizes["L"])}


def _absorbed(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return _latents(source, sizes)


def _absorbed_attrs(sizes: Sizes) -> dict[str, Any]:
    return {"value_dim": sizes["L"], "scale": (sizes["L"] + sizes["R"]) ** -0.5}


def _latents_control(case: Case) -> Control | None:
    return latents_grown(dict(case.inputs)) if case.inputs["q"].size else None


def _expanded(op: str, source: Draw, sizes: Sizes) -> Arrays:
    return expanded(source, _latents(source, sizes), sizes["N"], sizes["V"])


def _expanded_attrs(sizes: Sizes) -> dict[str, Any]:
    return {"nope_dim": sizes["N"], "scale": (sizes["N"] + sizes["R"]) ** -0.5}


_VECTORS = (
    *BATCH,
    _HEADS,
    Dimension("L", 12, (1, 8, 12, 64, 512)),
    Dimension("R", 8, (0, 1, 2, 8, 64)),
)
_MANY: tuple[Sizes, ...] = (
    {"T": 33, "past": 0},
    {"T": 9, "decoding": 3, "L": 64, "R": 16},
    {"T": 129, "past": 127, "B": 1, "S": 1},
    {"past": 1099, "S": 128, "L": 64, "R": 32},
    {"past": 0, "B": 1, "H": 1, "L": 1, "R": 0, "S": 1},
)

LATENT: dict[str, Family] = {
    "sink_attention": Family(GROUPED, _sinks, _sinks_control, scale_of, EXTREMES),
    "latent_write": Family(
        (
            Dimension("T", 3, ROWS),
            Dimension("D", 20, _WIDTHS),
            Dimension("S", 16, PAGE_SIZES),
            Dimension("P", 70, (2, 3, 33)),
        ),
        _write,
        grown("latent"),
        crossed=({"T": 1025, "D": 576, "S": 32}, {"T": 1, "D": 1, "S": 1}),
    ),
    "latent_attention": Family(_VECTORS, _absorbed, _latents_control, _absorbed_attrs, _MANY),
    "expanded_attention": Family(
        (
            *_VECTORS,
            Dimension("N", 10, (1, 8, 10, 16, 128)),
            Dimension("V", 14, (1, 8, 14, 16, 128)),
        ),
        _expanded,
        grown("up", over="q"),
        _expanded_attrs,
        _MANY,
    ),
}
