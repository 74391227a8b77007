"""The primitives. Floats are computed in float32 or wider and rounded when they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anychip.hostops.matrix import exact_product, rows_by_matrix
from anychip.hostops.views import Array, Floats, exact_index, floats

Inputs = Mapping[str, Any]
Outputs = Mapping[str, Array]
Attrs = Mapping[str, Any]
Kernel = Callable[[Inputs, Outputs, Attrs], None]


def is_float(x: Array) -> bool:
    """Whether the array holds one of the float types, bfloat16 included (numpy calls it void)."""
    return x.dtype.kind in "fV"


def sigmoid(x: Floats) -> Array:
    """1 / (1 + e**-x)."""
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Floats) -> Array:
    """x * sigmoid(x)."""
    return x / (1.0 + np.exp(-x))


def gelu_tanh(x: Floats) -> Array:
    """The tanh form of GELU."""
    inner = np.float32(np.sqrt(2.0 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    result: Array = np.float32(0.5) * x * (1.0 + np.tanh(inner))
    return result


def _rsqrt(x: Floats) -> Array:
    return 1.0 / np.sqrt(x)


UNARY: dict[str, Callable[[Any], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "neg": np.negative,
    "rsqrt": _rsqrt,
    "sqrt": np.sqrt,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "abs": np.abs,
    "round": np.rint,
}
BINARY: dict[str, Callable[[Any, Any], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
}
COMPARE: dict[str, Callable[[Any, Any], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
}
REDUCE: dict[str, Callable[..., Array]] = {
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_mean": np.mean,
}


def _values(x: Array) -> Array:
    return floats(x) if is_float(x) else x


def _unary(function: Callable[[Any], Array]) -> Kernel:
    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        outputs["y"][...] = function(_values(inputs["x"]))

    return kernel


def _binary(function: Callable[[Any, Any], Array]) -> Kernel:
    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        outputs["y"][...] = function(_values(inputs["a"]), _values(inputs["b"]))

    return kernel


def _reduce(function: Callable[..., Array]) -> Kernel:
    """Sums in float64, so that zeros in between do not change them (see `matrix.py`)."""
    wide = function in (np.sum, np.mean)

    def kernel(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
        x = _values(inputs["x"])
        options = {"dtype": np.float64} if wide and is_float(x) else {}
        outputs["y"][...] = function(x, axis=-1, keepdims=True, **options)

    return kernel


def copy(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A contiguous copy."""
    outputs["y"][...] = inputs["x"]


def cast(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Another dtype."""
    outputs["y"][...] = _values(inputs["x"])


def fill(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One value everywhere."""
    outputs["y"][...] = attrs["value"]


def arange(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """0, 1, 2, ..."""
    outputs["y"][...] = np.arange(attrs["length"])


def cumsum(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Running sum, in float64 or int32."""
    x = inputs["x"]
    outputs["y"][...] = np.cumsum(_values(x), axis=-1, dtype=np.float64 if is_float(x) else None)


def where(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One or the other."""
    np.copyto(outputs["y"], inputs["b"])
    np.copyto(outputs["y"], inputs["a"], where=inputs["condition"])


def first_largest(x: Array) -> Array:
    """Index of the largest value; NaN is never chosen, all NaN gives -1."""
    values = floats(x)
    index: Array = np.argmax(values, axis=-1)  # numpy takes the first NaN where there is one
    if not np.isnan(np.take_along_axis(values, index[..., None], axis=-1)).any():
        return index
    number = ~np.isnan(values)
    best = np.where(number, values, np.float32(-np.inf)).max(axis=-1, keepdims=True)
    index = np.argmax(number & (values == best), axis=-1)
    return np.where(number.any(axis=-1), index, -1)


def argmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The first of the largest; -1 where all are NaN."""
    outputs["y"][...] = first_largest(inputs["x"])


def gather_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Rows by index."""
    table = inputs["table"]
    outputs["y"][...] = table[exact_index(inputs["index"], table.shape[0], "gather_rows")]


def scatter_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Write rows by index; negative ones are skipped."""
    index = inputs["index"]
    inputs["target"][index[index >= 0]] = inputs["source"][index >= 0]


def scatter_add_rows(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Add rows by index, in order; negative ones are skipped."""
    index = inputs["index"]
    np.add.at(inputs["target"], index[index >= 0], inputs["source"][index >= 0])


def _descending(x: Array, count: int) -> tuple[Array, Array]:
    order = np.argsort(-floats(x), axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, order, axis=-1), order


def topk(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The k largest."""
    outputs["values"][...], outputs["indices"][...] = _descending(inputs["x"], attrs["k"])


def sort(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Descending and stable."""
    x = inputs["x"]
    outputs["values"][...], outputs["indices"][...] = _descending(x, x.shape[-1])


def histogram(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Counts; values outside 0 .. bins - 1 are not counted."""
    index, bins = inputs["index"].ravel(), attrs["bins"]
    inside = index[(index >= 0) & (index < bins)]
    outputs["y"][...] = np.bincount(inside, minlength=bins)


def matmul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One product, rows independent of each other."""
    b = inputs["b"]
    outputs["y"][...] = rows_by_matrix(inputs["a"], b if attrs["transpose_b"] else b.T)


def batched_matmul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Many products, summed in float64."""
    b = inputs["b"]
    right = b.swapaxes(-1, -2) if attrs["transpose_b"] else b
    outputs["y"][...] = exact_product(inputs["a"], right)


KERNELS: dict[str, Kernel] = {
    "copy": copy,
    "cast": cast,
    "fill": fill,
    "arange": arange,
    "cumsum": cumsum,
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in (BINARY | COMPARE).items()},
    "where": where,
    **{name: _reduce(function) for name, function in REDUCE.items()},
    "argmax": argmax,
    "gather_rows": gather_rows,
    "scatter_rows": scatter_rows,
    "scatter_add_rows": scatter_add_rows,
    "topk": topk,
    "sort": sort,
    "histogram": histogram,
    "matmul": matmul,
    "batched_matmul": batched_matmul,
}
