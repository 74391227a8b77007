"""Cases of attention with sinks, of latent caches and of attention over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.ops.cases.attention import (
    Form,
    Heads,
    Ragged,
    attention_cases,
    attention_inputs,
    kv_copy_pages,
)
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, apart, draw, scaled
from anychip.ops.oracle.arrays import CacheArrays, latent_arrays


def with_sinks(source: Draw, ragged: Ragged, heads: Heads) -> dict[str, Any]:
    """Sinks whose weight is that of a few ordinary columns, and of many."""
    inputs = attention_inputs(source, ragged, heads)
    return {**inputs, "sinks": source.normal(heads.query, mean=1.0, scale=1.5)}


def sinks_raised(inputs: dict[str, Any]) -> Control:
    """A control: sinks that take more."""
    return Control("sinks raised by 2", {"sinks": inputs["sinks"] + np.float32(2)})


def latent_size(width: int) -> int:
    """How many elements of cached vectors of this size are values, in cases."""
    return max(1, 3 * width // 4)


def latent_cache(source: Draw, pages: int, page_size: int, sizes: tuple[int, int]) -> CacheArrays:
    """Random vectors. sizes: of a vector, and of the values in it."""
    return latent_arrays(source.normal(pages, page_size, 1, sizes[0]), sizes[1])


def over_latents(source: Draw, ragged: Ragged, heads: Heads) -> dict[str, Any]:
    """Queries over a latent cache whose vectors are as long as they are."""
    inputs = attention_inputs(source, ragged, Heads(heads.query, 1, heads.dim))
    return {**inputs, "cache": latent_arrays(inputs["cache"].k, latent_size(heads.dim))}


def latents_grown(inputs: dict[str, Any]) -> Control:
    """A control: what the cache holds, half again as large."""
    grown = inputs["cache"].mapped(lambda half: (half * 1.5).astype(half.dtype))
    return Control("latents half again as large", {"cache": grown})


def nope_size(width: int) -> int:
    """How many elements of a key are not rotated, in cases with cached vectors of this size."""
    return max(1, width // 2)


def expanded(source: Draw, inputs: dict[str, Any], nope: int, value: int) -> dict[str, Any]:
    """The inputs of latent attention with a matrix that expands them. nope, value: elements of a
    key that are not rotated, and of a value."""
    cache, (tokens, heads, width) = inputs["cache"], inputs["q"].shape
    rank = cache.latent
    return {
        **inputs,
        "q": source.normal(tokens, heads, nope + width - rank),
        "up": source.normal(heads, nope + value, rank, scale=rank**-0.5),
    }


def _expanding(source: Draw, ragged: Ragged, heads: Heads) -> dict[str, Any]:
    inputs = over_latents(source, ragged, heads)
    return expanded(source, inputs, nope_size(heads.dim), 1 + heads.dim // 3)


def _matrix_grown(inputs: dict[str, Any]) -> Control:
    return scaled(inputs, "up")


SINKS = Form(with_sinks, lambda heads: {}, sinks_raised)
LATENT = Form(over_latents, lambda heads: {"value_dim": latent_size(heads.dim)}, latents_grown)
EXPANDED = Form(_expanding, lambda heads: {"nope_dim": nope_size(heads.dim)}, _matrix_grown)


def sink_attention(op: str) -> list[Case]:
    """As attention without sinks, and sinks that take nearly nothing and nearly all."""
    inputs = with_sinks(draw(f"{op} extremes"), Ragged((3, 1), (9, 17), 8), Heads(4, 2, 16))
    cases = []
    for name, value in (("low", -40.0), ("high", 12.0)):
        sinks = np.full(4, value, np.float32)
        given = {**inputs, "sinks": sinks}
        control = Control("sinks at 0", {"sinks": np.zeros_like(sinks)})
        cases.append(Case(op, f"{name} sinks", given, {"scale": 0.25}, control))
    return attention_cases(op, SINKS) + cases


def latent_attention(op: str) -> list[Case]:
    """The cases of attention, over vectors that are keys and values."""
    return attention_cases(op, LATENT)


def expanded_attention(op: str) -> list[Case]:
    """The cases of attention, over vectors that a matrix expands."""
    return attention_cases(op, EXPANDED)


def latent_write(op: str) -> list[Case]:
    """Scattered slots, skipped tokens, rows apart."""
    source = draw(op)
    cases = []
    for name, tokens, page_size, width, gap in (
        ("no tokens", 0, 4, 8, 0),
        ("one token", 1, 1, 1, 0),
        ("scattered", 7, 4, 64, 0),
        ("rows apart", 5, 16, 20, 12),
    ):
        cache = latent_cache(source, 5, page_size, (width, latent_size(width)))
        slots = source.distinct(tokens, high=5 * page_size)
        slots[2:3] = -1
        latent = apart(source.normal(tokens, width), gap)
        inputs = {"cache": cache, "latent": latent, "slots": slots}
        cases.append(Case(op, name, inputs, {}, scaled(inputs, "latent") if tokens else None))
    return cases


def copied_pages(op: str) -> list[Case]:
    """Pages of keys and values, then pages of a latent cache."""
    source = draw(f"{op} latent")
    order = source.distinct(6, high=8)
    cache = latent_cache(source, 8, 16, (20, 15))
    inputs = {"cache": cache, "sources": order[:3], "targets": order[3:]}
    swapped = {"sources": inputs["targets"], "targets": inputs["sources"]}
    control = Control("sources and targets exchanged", swapped)
    return [*kv_copy_pages(op), Case(op, "3 of a latent cache", inputs, {}, control)]


LATENTS: dict[str, Callable[[str], list[Case]]] = {
    "kv_copy_pages": copied_pages,
    "sink_attention": sink_attention,
    "latent_write": latent_write,
    "latent_attention": latent_attention,
    "expanded_attention": expanded_attention,
}
