"""The fused rungs: attention_block and mlp_block as one C call each, see `kernels/blocks.cpp`."""

from __future__ import annotations

from typing import Any

from anychip.chips.cpu.operators_calls import (
    ACTIVATIONS,
    ALL_FORMATS,
    CACHES,
    EXACT_FORMATS,
    INT8_FORMATS,
    ROUNDED,
    Fields,
    Kernel,
    attends,
    cache_code,
    cache_fields,
    code_of,
    linear_covers,
    rotary_covers,
    scratch_of,
    tensor_of,
)
from anychip.contract.cache import CacheSpec
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import TensorSpec
from anychip.contract.weights import WeightSpec

KINDS = ("silu", "gelu_tanh")
"""Activations, by their codes in abi.h."""


def _mlp(call: Call) -> Fields:
    return {
        **_mlp_sizes(call.spec),
        "x_stride": tensor_of(call, "x").strides[0],
        "kind": KINDS.index(call.attrs["activation"]),
        "eps": call.attrs["eps"],
    }


def _mlp_sizes(call: CallSpec) -> Fields:
    x, gate_up, down = (call.inputs[name] for name in ("x", "gate_up", "down"))
    assert isinstance(x, TensorSpec)
    assert isinstance(gate_up, WeightSpec) and isinstance(down, WeightSpec)
    return {
        "rows": x.shape[0],
        "k": x.shape[1],
        "inner": down.shape[1],
        "type": code_of(x.dtype),
        "gate_up_format": code_of(gate_up.format),
        "down_format": code_of(down.format),
    }


def _mlp_covers(call: CallSpec) -> str | None:
    if call.attrs["activation"] not in KINDS:
        return f"activation {call.attrs['activation']}, it covers {', '.join(KINDS)}"
    return linear_covers(call, "gate_up", "down")


def _attention(call: Call) -> Fields:
    _, cache = cache_fields(call)
    named = ("eps", "scale", "softcap", "causal", "window", "neox")
    return {
        **cache,
        **_attention_sizes(call.spec),
        "x_stride": tensor_of(call, "x").strides[0],
        "limit": tensor_of(call, "cos_sin").shape[0],
        **{name: call.attrs[name] for name in named},
    }


def _attention_sizes(call: CallSpec) -> Fields:
    x, cache, table = (call.inputs[name] for name in ("x", "cache", "page_table"))
    qkv, output = call.inputs["qkv"], call.inputs["output"]
    assert isinstance(x, TensorSpec) and table is not None and isinstance(cache, CacheSpec)
    assert isinstance(qkv, WeightSpec) and isinstance(output, WeightSpec)
    return {
        "tokens": x.shape[0],
        "k": x.shape[1],
        "type": code_of(x.dtype),
        "qkv_format": code_of(qkv.format),
        "output_format": code_of(output.format),
        "heads": call.attrs["heads"],
        "kv_heads": cache.group.kv_heads,
        "dim": cache.group.head_dim,
        "rotary_dim": call.attrs["rotary_dim"],
        "rows": table.shape[0],
        "table_width": table.shape[1],
        "page_size": cache.group.page_size,
        "cache_type": cache_code(cache.group.dtype),
    }


def _attention_covers(call: CallSpec) -> str | None:
    cache, cos_sin = call.inputs["cache"], call.inputs["cos_sin"]
    assert isinstance(cache, CacheSpec) and cos_sin is not None
    dim = cache.group.head_dim
    return (
        attends(call.attrs["heads"], dim, cache)
        or rotary_covers(call.attrs["rotary_dim"], dim, cos_sin.shape[1])
        or linear_covers(call, "qkv", "output")
    )


_SAME = (("sum", "residual"),)
_EXACT = {"X": ACTIVATIONS, "W": EXACT_FORMATS, "O": EXACT_FORMATS}
_TYPES: tuple[tuple[dict[str, tuple[str, ...]], dict[str, Any]], ...] = (
    (_EXACT, {}),
    *(
        ({"X": (x,), **types}, {"variant": f"_int8_{where}_{x}", "tolerance": tolerance})
        for x, tolerance in ROUNDED.items()
        for where, types in (
            ("first", {"W": INT8_FORMATS, "O": ALL_FORMATS}),
            ("last", {"W": EXACT_FORMATS, "O": INT8_FORMATS}),
        )
    ),
)

BLOCKS: tuple[Kernel, ...] = (
    *(
        Kernel(
            "mlp_block",
            "mlp_block",
            _mlp,
            types,
            _mlp_covers,
            scratch_of("mlp_block", _mlp_sizes),
            _SAME,
            **how,
        )
        for types, how in _TYPES
    ),
    *(
        Kernel(
            "attention_block",
            "attention_block",
            _attention,
            {**types, "C": CACHES},
            _attention_covers,
            scratch_of("attention_block", _attention_sizes),
            _SAME,
            **how,
        )
        for types, how in _TYPES
    ),
)
