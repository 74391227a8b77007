"""Cache and attention. B sequences, M pages a row of the page table, S page size.

Slot s of a cache is offset s % S of page s // S. Page 0 is a sink: padding writes there. A batch
is ragged: tokens of sequence b are cu_q[b] .. cu_q[b + 1]. kv_lens counts this step's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.cache import CacheSpec
from anychip.contract.signature import (
    Arg,
    ArgKind,
    Attr,
    Layout,
    Signature,
    SignatureError,
    Specs,
    Tier,
    shape_of,
)
from anychip.contract.tensor import TensorSpec

CACHE = Arg("cache", "C", "P,S,G,D", ArgKind.CACHE)
CU_Q = Arg("cu_q", "int32", "Q", ArgKind.INDEX)
TOKENS = (
    Arg("positions", "int32", "T", ArgKind.INDEX),
    Arg("token_rows", "int32", "T", ArgKind.INDEX),
)
BATCH = (
    Arg("page_table", "int32", "B,M", ArgKind.INDEX),
    CU_Q,
    Arg("kv_lens", "int32", "B", ArgKind.INDEX),
    *TOKENS,
)
ATTENTION_ATTRS = (
    Attr("scale", "float"),
    Attr("causal", "bool", True),
    Attr("window", "int", 0),
    Attr("softcap", "float", 0.0),
)

_Q = Arg("q", "X", "T,H,D", layout=Layout.ROWS)
_SEEN = (
    "Attention of a ragged batch over the cache, prefill and decode alike. Token t of row "
    "b = token_rows[t] sees cache positions j < kv_lens[b], with causal j <= positions[t], "
    "with window w > 0 also j > positions[t] - w (a window counts the token itself). Scores "
    "are q.k * scale, softcap c > 0: c * tanh(s / c); softmax in float32. A token that sees "
    "nothing gives zeros."
)


def _cache(op: str, inputs: Specs, latent: bool) -> CacheSpec:
    """The cache of a call, of the kind that the operator takes."""
    cache = inputs["cache"]
    assert isinstance(cache, CacheSpec)
    if bool(cache.group.latent) == latent:
        return cache
    if latent:
        raise SignatureError(f"{op}: the cache has keys and values, it takes latent ones")
    raise SignatureError(f"{op}: the cache is latent, it takes one with values")


def _written(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    _cache("kv_write", inputs, latent=False)
    return ()


def _latent_written(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    _cache("latent_write", inputs, latent=True)
    return ()


def _as_queries(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    _cache("sink_attention" if "sinks" in inputs else "paged_attention", inputs, latent=False)
    q = inputs["q"]
    assert isinstance(q, TensorSpec)
    return (TensorSpec(q.shape, q.dtype),)


def _latent_mixed(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    cache, q = _cache("latent_attention", inputs, latent=True), inputs["q"]
    assert isinstance(q, TensorSpec)
    size, most = attrs["value_dim"], cache.group.head_dim
    if not 1 <= size <= most:
        raise SignatureError(f"latent_attention: value_dim = {size} must lie in 1 .. {most}")
    return (TensorSpec((*q.shape[:2], size), q.dtype),)


def _expanded(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    cache, q = _cache("expanded_attention", inputs, latent=True), inputs["q"]
    assert isinstance(q, TensorSpec)
    _, rows, rank = shape_of(inputs, "up")
    nope, rotated = attrs["nope_dim"], cache.group.head_dim - rank
    if not 0 < nope < rows or rotated < 0 or q.shape[2] != nope + rotated:
        raise SignatureError(
            f"expanded_attention: queries of {q.shape[2]}, cached vectors of "
            f"{cache.group.head_dim}, up {shape_of(inputs, 'up')}, nope_dim = {nope}"
        )
    return (TensorSpec((*q.shape[:2], rows - nope), q.dtype),)


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "kv_write",
        Tier.REQUIRED,
        (
            CACHE,
            Arg("k", "X", "T,G,D", layout=Layout.ROWS),
            Arg("v", "X", "T,G,D", layout=Layout.ROWS),
            Arg("slots", "int32", "T", ArgKind.INDEX),
        ),
        (),
        "Write each token's key and value at its slot, rounded to the cache's dtype; -1 skips.",
        writes=("cache",),
        infer=_written,
    ),
    Signature(
        "kv_copy_pages",
        Tier.COMPOSED,
        (
            CACHE,
            Arg("sources", "int32", "N", ArgKind.INDEX),
            Arg("targets", "int32", "N", ArgKind.INDEX),
        ),
        (),
        "Page targets[i] becomes a copy of page sources[i]; no page is in both lists. A "
        "latent cache's pages are copied once.",
        writes=("cache",),
    ),
    Signature(
        "paged_attention",
        Tier.REQUIRED,
        (_Q, CACHE, *BATCH),
        (Arg("y", "X", "T,H,D"),),
        f"{_SEEN} Query head h reads KV head h // (H / G).",
        ATTENTION_ATTRS,
        infer=_as_queries,
    ),
    Signature(
        "sink_attention",
        Tier.COMPOSED,
        (_Q, CACHE, *BATCH, Arg("sinks", "float32", "H")),
        (Arg("y", "X", "T,H,D"),),
        f"paged_attention where each head has one more column of score sinks[h], neither scaled "
        f"nor capped, that takes weight and adds nothing. {_SEEN}",
        ATTENTION_ATTRS,
        infer=_as_queries,
    ),
    Signature(
        "latent_write",
        Tier.COMPOSED,
        (
            CACHE,
            Arg("latent", "X", "T,D", layout=Layout.ROWS),
            Arg("slots", "int32", "T", ArgKind.INDEX),
        ),
        (),
        "Write each token's vector at its slot of a latent cache, rounded to its dtype; -1 skips.",
        writes=("cache",),
        infer=_latent_written,
    ),
    Signature(
        "latent_attention",
        Tier.COMPOSED,
        (_Q, CACHE, *BATCH),
        (Arg("y", "X", "T,H,E"),),
        f"paged_attention over a latent cache: every head's keys are the cached vectors, its "
        f"values their first value_dim elements. {_SEEN}",
        (Attr("value_dim", "int"), *ATTENTION_ATTRS),
        infer=_latent_mixed,
    ),
    Signature(
        "expanded_attention",
        Tier.COMPOSED,
        (
            Arg("q", "X", "T,H,A", layout=Layout.ROWS),
            CACHE,
            Arg("up", "X", "H,N,L"),
            *BATCH,
        ),
        (Arg("y", "X", "T,H,V"),),
        f"Attention over a latent cache whose vectors are [latent of L | rotated of D - L]. Head h "
        f"has the key [up[h, :nope_dim] @ latent | rotated] and the value up[h, nope_dim:] @ "
        f"latent; V = N - nope_dim, A = nope_dim + D - L (DeepSeek-V2, section 2.1). {_SEEN}",
        (Attr("nope_dim", "int"), *ATTENTION_ATTRS),
        infer=_expanded,
    ),
)

LATENT = ("latent_write", "latent_attention", "expanded_attention")
"""Operators that take latent caches alone; `kv_copy_pages` takes both kinds, all others none."""
