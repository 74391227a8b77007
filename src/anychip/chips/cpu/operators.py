"""Operators of the cpu chip: calls become structs of `kernels/abi.h`, a launch is one C call."""

from __future__ import annotations

from math import prod
from typing import Any

from anychip import hostops
from anychip.chips.cpu.build import KernelLibrary
from anychip.chips.cpu.build_isa import VNNI
from anychip.chips.cpu.memory import address_of, raw_bytes
from anychip.chips.cpu.operators_attention import OVER_CACHES
from anychip.chips.cpu.operators_blocks import BLOCKS
from anychip.chips.cpu.operators_calls import (
    ACTIVATIONS,
    ALL_FORMATS,
    EXACT_FORMATS,
    INT8_FORMATS,
    ROUNDED,
    STORAGE,
    Fields,
    Kernel,
    code_of,
    linear_covers,
    rotary_covers,
    tensor_of,
    weight_of,
)
from anychip.chips.cpu.operators_experts import EXPERTS
from anychip.chips.cpu.operators_recurrent import RECURRENT
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.execution import Queue
from anychip.contract.operators import Call, CallSpec, OperatorTable
from anychip.contract.signature import Tier
from anychip.contract.tensor import Tensor, TensorSpec
from anychip.contract.weights import WeightSpec

ANY = tuple(d.value for d in DType)


class CpuQueue(Queue):
    """Every launch has run when it returns."""

    def synchronize(self, timeout: float | None) -> None:
        """Nothing to wait for."""


def _embedding(call: Call) -> Fields:
    table, y = weight_of(call, "table"), call.outputs["y"]
    return {
        "rows": y.shape[0],
        "n": table.spec.shape[0],
        "k": table.spec.shape[1],
        "packed": not table.spec.dense,
        "format": code_of(table.spec.format),
        "y_type": code_of(y.dtype),
        "scale": call.attrs["scale"],
    }


def _norm(call: Call) -> Fields:
    x = tensor_of(call, "x")
    return {
        "rows": x.shape[0],
        "k": x.shape[1],
        "x_stride": x.strides[0],
        "type": code_of(x.dtype),
        "eps": call.attrs["eps"],
    }


def _rotary(call: Call) -> Fields:
    q, k, table = (tensor_of(call, n) for n in ("q", "k", "cos_sin"))
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
        "type": code_of(q.dtype),
    }


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


def _linear(call: Call) -> Fields:
    x, weight = tensor_of(call, "x"), weight_of(call, "weight")
    y = next(iter(call.outputs.values()))
    return {
        "y": address_of(y),
        "rows": x.shape[0],
        "n": weight.spec.shape[0],
        "k": weight.spec.shape[1],
        "x_stride": x.strides[0],
        "y_stride": weight.spec.shape[0],
        "x_type": code_of(x.dtype),
        "format": code_of(weight.spec.format),
        "y_type": code_of(y.dtype),
        "scale": call.attrs.get("scale", 1.0),
        "cap": call.attrs.get("softcap", 0.0),
    }


def _linear_scratch(library: KernelLibrary, call: CallSpec) -> int:
    x, weight = call.inputs["x"], call.inputs["weight"]
    assert isinstance(x, TensorSpec) and isinstance(weight, WeightSpec)
    return library.linear_workspace(code_of(weight.format), x.shape[0], x.shape[1])


def _gated(call: Call) -> Fields:
    y, kind = call.outputs["y"], ("silu_and_mul", "gelu_tanh_and_mul").index(call.spec.op)
    return {"rows": y.shape[0], "inner": y.shape[1], "type": code_of(y.dtype), "kind": kind}


def _clamped(call: Call) -> Fields:
    y = call.outputs["y"]
    sizes = {"rows": y.shape[0], "inner": y.shape[1], "type": code_of(y.dtype)}
    return {**sizes, **{name: call.attrs[name] for name in ("alpha", "limit")}}


def _rotary_covers(call: CallSpec) -> str | None:
    q, table = call.inputs["q"], call.inputs["cos_sin"]
    assert q is not None and table is not None
    return rotary_covers(call.attrs["rotary_dim"], q.shape[2], table.shape[1])


def _linear_covers(call: CallSpec) -> str | None:
    return linear_covers(call, "weight")


def _logits(call: Call) -> Fields:
    rows, n = tensor_of(call, "logits").shape
    y = next(iter(call.outputs.values()))
    return {"y": address_of(y), "rows": rows, "n": n, "kind": call.spec.op == "log_softmax"}


def _logits_alone(call: Call) -> Fields:
    rows, n = tensor_of(call, "logits").shape
    return {"rows": rows, "n": n}


def _adjusted(call: Call) -> Fields:
    limit, n = tensor_of(call, "logits").shape
    return {"count": tensor_of(call, "rows").size, "limit": limit, "n": n}


def _top(call: Call) -> Fields:
    return {**_logits_alone(call), "top": call.attrs["n"]}


def _sample_scratch(library: KernelLibrary, call: CallSpec) -> int:
    logits = call.inputs["logits"]
    assert logits is not None
    return 2 * library.threads * logits.shape[1] * 4


def _elements(call: Call) -> Fields:
    kind = {"add": 1, "mul": 2}.get(call.spec.op, 0)
    a, y = tensor_of(call, "a" if kind else "x"), call.outputs["y"]
    types = {"a_type": code_of(a.dtype), "y_type": code_of(y.dtype)}
    return {"a": address_of(a), **types, "count": y.size, "kind": kind}


def _elements_cover(call: CallSpec) -> str | None:
    y = next(iter(call.outputs.values()))
    for name, spec in call.inputs.items():
        assert isinstance(spec, TensorSpec)
        if spec.shape != y.shape or not spec.is_contiguous:
            return f"'{name}' is broadcast or strided"
    return None


def _gather(call: Call) -> Fields:
    return _moved(tensor_of(call, "table"), tensor_of(call, "index"), call.outputs["y"], None)


def _scatter(call: Call) -> Fields:
    source = tensor_of(call, "source")
    stride = source.strides[0] * source.dtype.itemsize
    return _moved(tensor_of(call, "target"), tensor_of(call, "index"), source, stride)


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
_XW = {"X": ACTIVATIONS, "W": ALL_FORMATS}
_AB = {"A": STORAGE, "B": STORAGE}
_SAME = (("sum", "residual"),)
_IN_PLACE = (("y", "logits"),)

_WHOLE = ("q8_0", "q4_0", "q4_1")
_EXACT = tuple(name for name in EXACT_FORMATS if name not in (*STORAGE, *_WHOLE))
# Where the processor can, rows meet some weights as whole numbers of 16 bits: linear_vnni.h. A
# result in float32 shows it: 6e-6 where floats give 6e-7.
_HEADS: tuple[tuple[dict[str, tuple[str, ...]], dict[str, Any]], ...] = (
    ({"X": ACTIVATIONS, "W": STORAGE}, {}),
    ({"X": ("float32",), "W": _WHOLE}, {"variant": "_quantized"}),
    ({"X": ("bfloat16",), "W": _WHOLE}, {"variant": "_whole", "needs": VNNI, "tolerance": 8.0}),
    ({"X": ("bfloat16",), "W": _WHOLE}, {"variant": "_widened", "lacks": VNNI}),
    ({"X": ACTIVATIONS, "W": _EXACT}, {"variant": "_exact"}),
    ({"X": ACTIVATIONS, "W": INT8_FORMATS}, {"variant": "_int8", "tolerance": ROUNDED["float32"]}),
)
_LINEARS: tuple[tuple[dict[str, tuple[str, ...]], dict[str, Any]], ...] = (
    ({"X": ACTIVATIONS, "W": EXACT_FORMATS}, {}),
    *(
        ({"X": (x,), "W": INT8_FORMATS}, {"variant": f"_int8_{x}", "tolerance": tolerance})
        for x, tolerance in ROUNDED.items()
    ),
)

KERNELS: tuple[Kernel, ...] = (
    Kernel("embedding", "embedding", _embedding, _XW),
    Kernel("rms_norm", "norm", _norm, _X),
    Kernel("add_rms_norm", "norm", _norm, _X, aliases=_SAME),
    Kernel("qk_norm", "qk_norm", _qk_norm, _X),
    Kernel("rotary_embedding", "rotary", _rotary, _X, _rotary_covers),
    *(
        Kernel(op, "linear", _linear, types, _linear_covers, _linear_scratch, **how)
        for op, ways in (("linear", _LINEARS), ("lm_head", _HEADS))
        for types, how in ways
    ),
    Kernel("silu_and_mul", "activation", _gated, _X),
    Kernel("gelu_tanh_and_mul", "activation", _gated, _X),
    Kernel("swiglu_clamp_and_mul", "swiglu_clamp", _clamped, _X),
    *BLOCKS,
    *OVER_CACHES,
    *EXPERTS,
    *RECURRENT,
    Kernel("softmax", "softmax", _logits, {}),
    Kernel("log_softmax", "softmax", _logits, {}),
    Kernel("greedy", "greedy", _logits, {}),
    Kernel("sample", "sample", _logits_alone, {}, workspace=_sample_scratch),
    Kernel("mask_logits", "mask_logits", _logits_alone, {}, aliases=_IN_PLACE),
    Kernel("adjust_logits", "adjust_logits", _adjusted, {}, aliases=_IN_PLACE),
    Kernel("token_logprobs", "token_logprobs", _logits_alone, {}),
    Kernel("top_logprobs", "top_logprobs", _top, {}),
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
    own = tuple(k.implementation(library) for k in KERNELS if k.suits(library.isa))
    served = {kernel.op for kernel in KERNELS}
    rest = (i for i in borrowed if CATALOGUE[i.op].tier is Tier.PRIMITIVE or i.op not in served)
    return OperatorTable((*own, *rest))
