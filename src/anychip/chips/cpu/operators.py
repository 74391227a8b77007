"""Operators of the cpu chip: calls become structs of `kernels/abi.h`, a launch is one C call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from anychip import hostops
from anychip.chips.cpu.build import POINTERS, KernelLibrary
from anychip.chips.cpu.capture import KernelLaunch
from anychip.chips.cpu.memory import FORMAT_CODES, address_of, raw_bytes
from anychip.contract.cache import KNOWN_LAYOUTS, CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.execution import Queue
from anychip.contract.operators import (
    Call,
    CallSpec,
    DtypeRow,
    Implementation,
    Launch,
    OperatorTable,
    Value,
)
from anychip.contract.signature import Tier
from anychip.contract.tensor import IndexPair, Tensor, TensorSpec
from anychip.contract.weights import Weight, WeightSpec

ACTIVATIONS = ("float32", "bfloat16")
STORAGE = ("float32", "bfloat16", "float16")
FORMATS = tuple(FORMAT_CODES)
ANY = tuple(d.value for d in DType)
MAX_HEAD_DIM = 512

Fields = dict[str, Any]
Covers = Callable[[CallSpec], "str | None"]


class CpuQueue(Queue):
    """Every launch has run when it returns."""

    def synchronize(self, timeout: float | None) -> None:
        """Nothing to wait for."""


@dataclass(frozen=True)
class Kernel:
    """How an operator's call becomes a C call.

    function: its name in abi.h without the prefix. fields: sizes and codes from a call, and
    pointers that are not named as the call's arguments are. workspace: bytes.
    """

    op: str
    function: str
    fields: Callable[[Call], Fields]
    types: Mapping[str, tuple[str, ...]]
    when: Covers = lambda call: None
    workspace: Callable[[KernelLibrary, CallSpec], int] = lambda library, call: 0
    aliases: tuple[tuple[str, str], ...] = ()

    def implementation(self, library: KernelLibrary) -> Implementation:
        """The same, bound to a loaded library."""
        return Implementation(
            op=self.op,
            id=f"{library.isa}.{self.op}",
            prepare=lambda call: self._prepare(library, call),
            dtypes=(DtypeRow(self.types),),
            when=self.when,
            workspace=lambda call: self.workspace(library, call),
            aliases=self.aliases,
        )

    def _prepare(self, library: KernelLibrary, call: Call) -> Launch:
        fields = _pointers(self.function, call) | self.fields(call)
        arguments = library.arguments(self.function, **fields)
        return KernelLaunch(self.op, library.function(self.function), arguments)


def _pointers(function: str, call: Call) -> Fields:
    """Pointer fields that are named as an argument of the call; absent ones stay null."""
    values = {**call.inputs, **call.outputs, "workspace": call.workspace}
    named = POINTERS[function] & set(values)
    return {n: _address(values[n]) for n in named if values[n] is not None}


def _address(value: Value | None) -> int:
    if isinstance(value, IndexPair):
        return address_of(value.device)
    if isinstance(value, Weight):
        return address_of(value.tensors[0])
    assert isinstance(value, Tensor)
    return address_of(value)


def _tensor(call: Call, name: str) -> Tensor:
    value = call.inputs[name]
    if isinstance(value, IndexPair):
        return value.device
    assert isinstance(value, Tensor)
    return value


def _code(dtype: DType | str) -> int:
    return FORMAT_CODES[str(dtype)]


def _weight(call: Call, name: str) -> Weight:
    value = call.inputs[name]
    assert isinstance(value, Weight)
    return value


def _embedding(call: Call) -> Fields:
    table, y = _weight(call, "table"), call.outputs["y"]
    return {
        "rows": y.shape[0],
        "n": table.spec.shape[0],
        "k": table.spec.shape[1],
        "packed": not table.spec.dense,
        "format": _code(table.spec.format),
        "y_type": _code(y.dtype),
        "scale": call.attrs["scale"],
    }


def _norm(call: Call) -> Fields:
    x = _tensor(call, "x")
    return {
        "rows": x.shape[0],
        "k": x.shape[1],
        "x_stride": x.strides[0],
        "type": _code(x.dtype),
        "eps": call.attrs["eps"],
    }


def _rotary(call: Call) -> Fields:
    q, k, table = (_tensor(call, n) for n in ("q", "k", "cos_sin"))
    return {
        "rows": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "dim": q.shape[2],
        "rotary_dim": call.attrs["rotary_dim"],
        "limit": table.shape[0],
        "q_stride": q.strides[0],
        "k_stride": k.strides[0],
        "neox": call.attrs["neox"],
        "type": _code(q.dtype),
    }


def _rotary_covers(call: CallSpec) -> str | None:
    q, table = call.inputs["q"], call.inputs["cos_sin"]
    assert q is not None and table is not None
    dim = call.attrs["rotary_dim"]
    if dim % 2 or dim > q.shape[2] or table.shape[1] != dim:
        return f"rotary_dim {dim} with heads of {q.shape[2]} and a table of {table.shape[1]}"
    return None


def _linear(call: Call) -> Fields:
    x, weight = _tensor(call, "x"), _weight(call, "weight")
    y = next(iter(call.outputs.values()))
    return {
        "y": address_of(y),
        "rows": x.shape[0],
        "n": weight.spec.shape[0],
        "k": weight.spec.shape[1],
        "x_stride": x.strides[0],
        "x_type": _code(x.dtype),
        "format": _code(weight.spec.format),
        "y_type": _code(y.dtype),
        "scale": call.attrs.get("scale", 1.0),
        "cap": call.attrs.get("softcap", 0.0),
    }


def _linear_covers(call: CallSpec) -> str | None:
    weight = call.inputs["weight"]
    if isinstance(weight, WeightSpec) and weight.dense:
        return "the weight was loaded for lookups alone, row by row"
    return None


def _linear_scratch(library: KernelLibrary, call: CallSpec) -> int:
    x = call.inputs["x"]
    assert x is not None
    return library.linear_workspace(x.shape[0], x.shape[1])


def _gated(call: Call) -> Fields:
    y, kind = call.outputs["y"], ("silu_and_mul", "gelu_tanh_and_mul").index(call.spec.op)
    return {"rows": y.shape[0], "inner": y.shape[1], "type": _code(y.dtype), "kind": kind}


def _cache(call: Call) -> tuple[CacheView, Fields]:
    """The cache and where its slots lie; keys and values are laid out alike."""
    view = call.inputs["cache"]
    assert isinstance(view, CacheView)
    page, slot, head, element = view.k.strides
    assert view.k.strides == view.v.strides and element == 1
    return view, {
        "k_cache": address_of(view.k),
        "v_cache": address_of(view.v),
        "pages": view.spec.pages,
        "page_size": view.spec.group.page_size,
        "page_stride": page,
        "slot_stride": slot,
        "head_stride": head,
        "cache_type": _code(view.spec.group.dtype),
    }


def _cache_covers(call: CallSpec) -> str | None:
    cache = call.inputs["cache"]
    if isinstance(cache, CacheSpec) and cache.group.layout not in KNOWN_LAYOUTS:
        return f"cache layout {cache.group.layout}, it covers {', '.join(KNOWN_LAYOUTS)}"
    return None


def _kv_write(call: Call) -> Fields:
    k, v = _tensor(call, "k"), _tensor(call, "v")
    sizes = {"rows": k.shape[0], "kv_heads": k.shape[1], "dim": k.shape[2]}
    strides = {"k_stride": k.strides[0], "v_stride": v.strides[0], "type": _code(k.dtype)}
    return {**sizes, **strides, **_cache(call)[1]}


def _copy_pages(call: Call) -> Fields:
    view, facts = _cache(call)
    kept = {n: facts[n] for n in ("k_cache", "v_cache", "pages")}
    return {
        **kept,
        "count": _tensor(call, "sources").size,
        "page_bytes": view.spec.group.layer_page_bytes,
        "page_stride": facts["page_stride"] * view.spec.group.dtype.itemsize,
    }


def _attention_sizes(q: Any, cache: Any, page_table: Any) -> Fields:
    return {
        "tokens": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": cache.group.kv_heads,
        "dim": q.shape[2],
        "rows": page_table.shape[0],
        "table_width": page_table.shape[1],
        "page_size": cache.group.page_size,
        "type": _code(q.dtype),
        "cache_type": _code(cache.group.dtype),
    }


def _attention(call: Call) -> Fields:
    q, (view, facts) = _tensor(call, "q"), _cache(call)
    return {
        **facts,
        **_attention_sizes(q, view.spec, _tensor(call, "page_table")),
        "q_stride": q.strides[0],
        **{n: call.attrs[n] for n in ("causal", "window", "scale", "softcap")},
    }


def _attention_scratch(library: KernelLibrary, call: CallSpec) -> int:
    sizes = _attention_sizes(*(call.inputs[n] for n in ("q", "cache", "page_table")))
    return library.attention_workspace(library.arguments("attention", **sizes))


def _attends(call: CallSpec) -> str | None:
    q, cache = call.inputs["q"], call.inputs["cache"]
    assert isinstance(q, TensorSpec) and isinstance(cache, CacheSpec)
    if q.shape[2] > MAX_HEAD_DIM:
        return f"heads of {q.shape[2]}, it covers up to {MAX_HEAD_DIM}"
    if q.shape[1] % cache.group.kv_heads:
        return f"{q.shape[1]} query heads are no multiple of {cache.group.kv_heads} KV heads"
    return _cache_covers(call)


def _logits(call: Call) -> Fields:
    rows, n = _tensor(call, "logits").shape
    y = next(iter(call.outputs.values()))
    return {"y": address_of(y), "rows": rows, "n": n, "kind": call.spec.op == "log_softmax"}


def _sample(call: Call) -> Fields:
    rows, n = _tensor(call, "logits").shape
    return {"rows": rows, "n": n}


def _sample_scratch(library: KernelLibrary, call: CallSpec) -> int:
    logits = call.inputs["logits"]
    assert logits is not None
    return 2 * library.threads * logits.shape[1] * 4


def _elements(call: Call) -> Fields:
    kind = {"add": 1, "mul": 2}.get(call.spec.op, 0)
    a, y = _tensor(call, "a" if kind else "x"), call.outputs["y"]
    types = {"a_type": _code(a.dtype), "y_type": _code(y.dtype)}
    return {"a": address_of(a), **types, "count": y.size, "kind": kind}


def _elements_cover(call: CallSpec) -> str | None:
    y = next(iter(call.outputs.values()))
    for name, spec in call.inputs.items():
        assert isinstance(spec, TensorSpec)
        if spec.shape != y.shape or not spec.is_contiguous:
            return f"'{name}' is broadcast or strided"
    return None


def _gather(call: Call) -> Fields:
    return _moved(_tensor(call, "table"), _tensor(call, "index"), call.outputs["y"], None)


def _scatter(call: Call) -> Fields:
    source = _tensor(call, "source")
    stride = source.strides[0] * source.dtype.itemsize
    return _moved(_tensor(call, "target"), _tensor(call, "index"), source, stride)


def _moved(table: Tensor, index: Tensor, rows: Tensor, stride: int | None) -> Fields:
    size = table.dtype.itemsize
    row_bytes = prod(table.shape[1:]) * size
    return {
        "table": address_of(table),
        "y": address_of(rows),
        "count": index.size,
        "limit": table.shape[0],
        "row_bytes": row_bytes,
        "table_stride": table.strides[0] * size,
        "y_stride": row_bytes if stride is None else stride,
    }


_X = {"X": ACTIVATIONS}
_XW = {"X": ACTIVATIONS, "W": FORMATS}
_XC = {"X": ACTIVATIONS, "C": STORAGE}
_C = {"C": STORAGE}
_AB = {"A": STORAGE, "B": STORAGE}
_SAME = (("sum", "residual"),)

KERNELS: tuple[Kernel, ...] = (
    Kernel("embedding", "embedding", _embedding, _XW),
    Kernel("rms_norm", "norm", _norm, _X),
    Kernel("add_rms_norm", "norm", _norm, _X, aliases=_SAME),
    Kernel("rotary_embedding", "rotary", _rotary, _X, _rotary_covers),
    Kernel("linear", "linear", _linear, _XW, _linear_covers, _linear_scratch),
    Kernel("lm_head", "linear", _linear, _XW, _linear_covers, _linear_scratch),
    Kernel("silu_and_mul", "activation", _gated, _X),
    Kernel("gelu_tanh_and_mul", "activation", _gated, _X),
    Kernel("kv_write", "kv_write", _kv_write, _XC, _cache_covers),
    Kernel("kv_copy_pages", "kv_copy_pages", _copy_pages, _C, _cache_covers),
    Kernel("paged_attention", "attention", _attention, _XC, _attends, _attention_scratch),
    Kernel("softmax", "softmax", _logits, {}),
    Kernel("log_softmax", "softmax", _logits, {}),
    Kernel("greedy", "greedy", _logits, {}),
    Kernel("sample", "sample", _sample, {}, workspace=_sample_scratch),
    Kernel("copy", "elements", _elements, {"A": STORAGE}, _elements_cover),
    Kernel("cast", "elements", _elements, _AB, _elements_cover),
    Kernel("add", "elements", _elements, {"A": STORAGE}, _elements_cover),
    Kernel("mul", "elements", _elements, {"A": STORAGE}, _elements_cover),
    Kernel("gather_rows", "gather_rows", _gather, {"A": ANY}),
    Kernel("scatter_rows", "scatter_rows", _scatter, {"A": ANY}),
)


def operator_table(library: KernelLibrary | None) -> OperatorTable:
    """Own kernels first, then hostops: for primitives and what has no kernel; for everything
    where there is no library."""
    borrowed = hostops.table(lambda tensor: hostops.array_view(raw_bytes(tensor), tensor))
    if library is None:
        return OperatorTable(borrowed)
    own = tuple(kernel.implementation(library) for kernel in KERNELS)
    served = {kernel.op for kernel in KERNELS}
    rest = (i for i in borrowed if CATALOGUE[i.op].tier is Tier.PRIMITIVE or i.op not in served)
    return OperatorTable((*own, *rest))
