"""The oracle of the primitives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.oracle.arrays import (
    Array,
    Attrs,
    Inputs,
    Oracle,
    Result,
    is_float,
    wide,
)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e**-x) without overflow."""
    small = np.exp(-np.abs(x))
    y: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return y


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Array) -> Array:
    """Hendrycks and Gimpel's tanh approximation of x * Phi(x)."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    y: Array = 0.5 * x * (1 + np.tanh(inner))
    return y


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def descending(x: Array) -> Array:
    """Indices that sort the last dimension downwards; equal values keep their order."""
    flipped = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    order: Array = (x.shape[-1] - 1 - flipped).astype(np.int32)
    return order


def _unary(function: Callable[[Array], Array]) -> Oracle:
    def oracle(inputs: Inputs, attrs: Attrs) -> Result:
        with np.errstate(all="ignore"):
            return Result((function(wide(inputs["x"])),))

    return oracle


def _binary(function: Callable[[Array, Array], Array]) -> Oracle:
    def oracle(inputs: Inputs, attrs: Attrs) -> Result:
        a, b = inputs["a"], inputs["b"]
        with np.errstate(all="ignore"):
            y = function(wide(a), wide(b))
        return Result((y if is_float(a) or y.dtype.kind == "b" else y.astype(a.dtype),))

    return oracle


def _reduce(function: Callable[..., Array]) -> Oracle:
    def oracle(inputs: Inputs, attrs: Attrs) -> Result:
        x = inputs["x"]
        y = function(wide(x), axis=-1, keepdims=True)
        return Result((y if is_float(x) else y.astype(x.dtype),))

    return oracle


def _copy(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((np.ascontiguousarray(wide(inputs["x"])),))


def _cast(inputs: Inputs, attrs: Attrs) -> Result:
    x, target = inputs["x"], NUMPY_DTYPES[DType(attrs["dtype"])]
    return Result((wide(x.astype(target)),))


def _fill(inputs: Inputs, attrs: Attrs) -> Result:
    target = NUMPY_DTYPES[DType(attrs["dtype"])]
    return Result((wide(np.full(tuple(attrs["shape"]), attrs["value"]).astype(target)),))


def _arange(inputs: Inputs, attrs: Attrs) -> Result:
    target = NUMPY_DTYPES[DType(attrs["dtype"])]
    return Result((wide(np.arange(attrs["length"]).astype(target)),))


def _cumsum(inputs: Inputs, attrs: Attrs) -> Result:
    x = inputs["x"]
    y = np.cumsum(wide(x), axis=-1)
    return Result((y if is_float(x) else y.astype(x.dtype),))


def _where(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((np.where(inputs["condition"], wide(inputs["a"]), wide(inputs["b"])),))


def first_largest(x: Array) -> Array:
    """Index of the first largest number of the last dimension; -1 where all are NaN."""
    number = ~np.isnan(x)
    best = np.where(number, x, -np.inf).max(axis=-1, keepdims=True)
    index = np.argmax(number & (x == best), axis=-1)
    chosen: Array = np.where(number.any(axis=-1), index, -1).astype(np.int32)
    return chosen


def _argmax(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((first_largest(wide(inputs["x"])),))


def _gather_rows(inputs: Inputs, attrs: Attrs) -> Result:
    return Result((wide(inputs["table"][inputs["index"]]),))


def _scatter_rows(inputs: Inputs, attrs: Attrs) -> Result:
    target, index = inputs["target"].copy(), inputs["index"]
    kept = index >= 0
    target[index[kept]] = inputs["source"][kept]
    return Result((), {"target": target})


def _scatter_add_rows(inputs: Inputs, attrs: Attrs) -> Result:
    target, index = wide(inputs["target"]), inputs["index"]
    kept = index >= 0
    np.add.at(target, index[kept], wide(inputs["source"])[kept])
    return Result((), {"target": target})


def _sort(inputs: Inputs, attrs: Attrs) -> Result:
    x = wide(inputs["x"])
    order = descending(x)[..., : attrs.get("k")]
    return Result((np.take_along_axis(x, order, axis=-1), order))


def _histogram(inputs: Inputs, attrs: Attrs) -> Result:
    counts = np.bincount(inputs["index"].ravel(), minlength=attrs["bins"])
    return Result((counts.astype(np.int32),))


def _matmul(inputs: Inputs, attrs: Attrs) -> Result:
    a, b = wide(inputs["a"]), wide(inputs["b"])
    return Result((a @ (b.swapaxes(-1, -2) if attrs["transpose_b"] else b),))


PRIMITIVES: dict[str, Oracle] = {
    "copy": _copy,
    "cast": _cast,
    "fill": _fill,
    "arange": _arange,
    "cumsum": _cumsum,
    "exp": _unary(np.exp),
    "log": _unary(np.log),
    "neg": _unary(np.negative),
    "rsqrt": _unary(_rsqrt),
    "sqrt": _unary(np.sqrt),
    "sigmoid": _unary(sigmoid),
    "tanh": _unary(np.tanh),
    "silu": _unary(silu),
    "gelu_tanh": _unary(gelu_tanh),
    "abs": _unary(np.abs),
    "round": _unary(np.rint),
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "pow": _binary(np.power),
    "lt": _binary(np.less),
    "le": _binary(np.less_equal),
    "eq": _binary(np.equal),
    "where": _where,
    "reduce_sum": _reduce(np.sum),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_mean": _reduce(np.mean),
    "argmax": _argmax,
    "gather_rows": _gather_rows,
    "scatter_rows": _scatter_rows,
    "scatter_add_rows": _scatter_add_rows,
    "topk": _sort,
    "sort": _sort,
    "histogram": _histogram,
    "matmul": _matmul,
    "batched_matmul": _matmul,
}
