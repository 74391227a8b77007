"""Operators over a cache: what writes and copies it, attention, also over latent vectors."""

from __future__ import annotations

from anychip.chips.cpu.memory import address_of
from anychip.chips.cpu.operators_calls import (
    ACTIVATIONS,
    CACHES,
    STORAGE,
    Fields,
    Kernel,
    attends,
    cache_code,
    cache_covers,
    cache_fields,
    code_of,
    scratch_of,
    tensor_of,
)
from anychip.contract.cache import CacheSpec
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import TensorSpec

_SEES = ("causal", "window", "scale", "softcap")


def _kv_write(call: Call) -> Fields:
    k, v = tensor_of(call, "k"), tensor_of(call, "v")
    sizes = {"rows": k.shape[0], "kv_heads": k.shape[1], "dim": k.shape[2]}
    strides = {"k_stride": k.strides[0], "v_stride": v.strides[0], "type": code_of(k.dtype)}
    return {**sizes, **strides, **cache_fields(call)[1]}


def _copy_pages(call: Call) -> Fields:
    view, facts = cache_fields(call)
    kept = {n: facts[n] for n in ("k_cache", "v_cache", "pages")}
    if view.spec.group.latent:
        del kept["v_cache"]  # a part of the keys
    return {
        **kept,
        "count": tensor_of(call, "sources").size,
        "page_bytes": view.spec.group.layer_page_bytes,
        "page_stride": facts["page_stride"] * view.spec.group.dtype.itemsize,
    }


def _latent_write(call: Call) -> Fields:
    latent, (_, facts) = tensor_of(call, "latent"), cache_fields(call)
    del facts["v_cache"]  # a part of the keys
    return {
        **facts,
        "k": address_of(latent),
        "rows": latent.shape[0],
        "kv_heads": 1,
        "dim": latent.shape[1],
        "k_stride": latent.strides[0],
        "type": code_of(latent.dtype),
    }


def _cache_covers(call: CallSpec) -> str | None:
    cache = call.inputs["cache"]
    assert isinstance(cache, CacheSpec)
    return cache_covers(cache)


def _attention(call: Call) -> Fields:
    _, facts = cache_fields(call)
    seen = {name: call.attrs[name] for name in _SEES}
    sizes = _attention_sizes(call.spec)
    return {**facts, **sizes, "q_stride": tensor_of(call, "q").strides[0], **seen}


def _attention_sizes(call: CallSpec) -> Fields:
    q, cache, table = (call.inputs[name] for name in ("q", "cache", "page_table"))
    assert isinstance(q, TensorSpec) and isinstance(cache, CacheSpec) and table is not None
    return {
        "tokens": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": cache.group.kv_heads,
        "dim": q.shape[2],
        "value_dim": call.outputs["y"].shape[2],
        "rows": table.shape[0],
        "table_width": table.shape[1],
        "page_size": cache.group.page_size,
        "type": code_of(q.dtype),
        "cache_type": cache_code(cache.group.dtype),
    }


def _attends(call: CallSpec) -> str | None:
    q, cache = call.inputs["q"], call.inputs["cache"]
    assert isinstance(q, TensorSpec) and isinstance(cache, CacheSpec)
    return attends(q.shape[1], q.shape[2], cache)


def _expanded(call: Call) -> Fields:
    _, facts = cache_fields(call)
    del facts["v_cache"]
    seen = {name: call.attrs[name] for name in _SEES}
    return {
        **facts,
        **_expanded_sizes(call.spec),
        "q_stride": tensor_of(call, "q").strides[0],
        **seen,
    }


def _expanded_sizes(call: CallSpec) -> Fields:
    q, cache, up, table = (call.inputs[n] for n in ("q", "cache", "up", "page_table"))
    assert isinstance(q, TensorSpec) and isinstance(cache, CacheSpec)
    assert up is not None and table is not None
    return {
        "tokens": q.shape[0],
        "heads": q.shape[1],
        "dim": cache.group.head_dim,
        "rank": up.shape[2],
        "nope": call.attrs["nope_dim"],
        "up_rows": up.shape[1],
        "rows": table.shape[0],
        "table_width": table.shape[1],
        "page_size": cache.group.page_size,
        "type": code_of(q.dtype),
        "cache_type": cache_code(cache.group.dtype),
    }


def _whole(call: Call) -> Fields:
    return {**_expanded(call), "whole": True}


def _whole_sizes(call: CallSpec) -> Fields:
    return {**_expanded_sizes(call), "whole": True}


def _whole_covers(call: CallSpec) -> str | None:
    q, y = call.inputs["q"], call.outputs["y"]
    assert q is not None
    if y.shape[2] > q.shape[2]:
        return f"values of {y.shape[2]}, longer than keys of {q.shape[2]}"
    return _cache_covers(call)


_XC = {"X": ACTIVATIONS, "C": CACHES}
_C = {"C": CACHES}
_LATENT = {"X": ACTIVATIONS, "C": STORAGE}
_ATTENTION_SCRATCH = scratch_of("attention", _attention_sizes)

OVER_CACHES: tuple[Kernel, ...] = (
    Kernel("kv_write", "kv_write", _kv_write, _XC, _cache_covers),
    Kernel("kv_copy_pages", "kv_copy_pages", _copy_pages, _C, _cache_covers, latent=True),
    Kernel("latent_write", "kv_write", _latent_write, _LATENT, _cache_covers, latent=True),
    Kernel("paged_attention", "attention", _attention, _XC, _attends, _ATTENTION_SCRATCH),
    Kernel("sink_attention", "attention", _attention, _XC, _attends, _ATTENTION_SCRATCH),
    Kernel(
        "latent_attention",
        "attention",
        _attention,
        _LATENT,
        _cache_covers,
        _ATTENTION_SCRATCH,
        latent=True,
    ),
    Kernel(
        "expanded_attention",
        "expanded_attention",
        _expanded,
        _LATENT,
        _cache_covers,
        scratch_of("expanded_attention", _expanded_sizes),
        latent=True,
    ),
    # For `--op`: never mixed with the one above, or a token would depend on how its prompt was cut.
    Kernel(
        "expanded_attention",
        "expanded_attention",
        _whole,
        _LATENT,
        _whole_covers,
        scratch_of("expanded_attention", _whole_sizes),
        latent=True,
        variant="_multiplied_out",
    ),
)
