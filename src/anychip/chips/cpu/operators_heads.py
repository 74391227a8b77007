"""Operators of heads: norms, attention with sinks and over latent caches, the clamped gate."""

from __future__ import annotations

from anychip.chips.cpu.build import KernelLibrary
from anychip.chips.cpu.memory import address_of
from anychip.chips.cpu.operators_calls import (
    ACTIVATIONS,
    STORAGE,
    Fields,
    Kernel,
    attends,
    attention_sizes,
    cache_covers,
    cache_fields,
    code_of,
    tensor_of,
)
from anychip.contract.cache import CacheSpec
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import TensorSpec

_SEES = ("causal", "window", "scale", "softcap")


def _qk_norm(call: Call) -> Fields:
    q, k = tensor_of(call, "q"), tensor_of(call, "k")
    return {
        "rows": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "dim": q.shape[2],
        "q_stride": q.strides[0],
        "k_stride": k.strides[0],
        "type": code_of(q.dtype),
        "eps": call.attrs["eps"],
    }


def _clamped(call: Call) -> Fields:
    y = call.outputs["y"]
    sizes = {"rows": y.shape[0], "inner": y.shape[1], "type": code_of(y.dtype)}
    return {**sizes, **{name: call.attrs[name] for name in ("alpha", "limit")}}


def _attention(call: Call) -> Fields:
    q, (view, facts) = tensor_of(call, "q"), cache_fields(call)
    sizes = attention_sizes(q, view.spec, tensor_of(call, "page_table"))
    sizes["value_dim"] = call.outputs["y"].shape[2]
    seen = {name: call.attrs[name] for name in _SEES}
    return {**facts, **sizes, "q_stride": q.strides[0], **seen}


def _attends(call: CallSpec) -> str | None:
    q, cache = call.inputs["q"], call.inputs["cache"]
    assert isinstance(q, TensorSpec) and isinstance(cache, CacheSpec)
    return attends(q.shape[1], q.shape[2], cache)


def _attention_scratch(library: KernelLibrary, call: CallSpec) -> int:
    sizes = attention_sizes(*(call.inputs[n] for n in ("q", "cache", "page_table")))
    sizes["value_dim"] = call.outputs["y"].shape[2]
    return library.workspace("attention", library.arguments("attention", **sizes))


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


def _whole(call: Call) -> Fields:
    return {**_expanded(call), "whole": True}


def _whole_covers(call: CallSpec) -> str | None:
    q, y = call.inputs["q"], call.outputs["y"]
    assert q is not None
    if y.shape[2] > q.shape[2]:
        return f"values of {y.shape[2]}, longer than keys of {q.shape[2]}"
    return _cache_covers(call)


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
        "cache_type": code_of(cache.group.dtype),
    }


def _expanded_scratch(library: KernelLibrary, call: CallSpec) -> int:
    sizes = library.arguments("expanded_attention", **_expanded_sizes(call))
    return library.workspace("expanded_attention", sizes)


def _whole_scratch(library: KernelLibrary, call: CallSpec) -> int:
    sizes = library.arguments("expanded_attention", **_expanded_sizes(call), whole=True)
    return library.workspace("expanded_attention", sizes)


_X = {"X": ACTIVATIONS}
_XC = {"X": ACTIVATIONS, "C": STORAGE}

HEADS: tuple[Kernel, ...] = (
    Kernel("qk_norm", "qk_norm", _qk_norm, _X),
    Kernel("swiglu_clamp_and_mul", "swiglu_clamp", _clamped, _X),
    Kernel("sink_attention", "attention", _attention, _XC, _attends, _attention_scratch),
    Kernel("latent_write", "kv_write", _latent_write, _XC, _cache_covers, latent=True),
    Kernel(
        "latent_attention",
        "attention",
        _attention,
        _XC,
        _cache_covers,
        _attention_scratch,
        latent=True,
    ),
    Kernel(
        "expanded_attention",
        "expanded_attention",
        _expanded,
        _XC,
        _cache_covers,
        _expanded_scratch,
        latent=True,
    ),
    # For `--op`: never mixed with the one above, or a token would depend on how its prompt was cut.
    Kernel(
        "expanded_attention",
        "expanded_attention",
        _whole,
        _XC,
        _whole_covers,
        _whole_scratch,
        latent=True,
        variant="_multiplied_out",
    ),
)
