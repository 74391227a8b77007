"""What a test case of an operator is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.oracle import CacheArrays, Result, evaluate
from anychip.ops.oracle.arrays import Array, is_float
from anychip.ops.oracle.scaled import in_dtype

_DTYPE_FOLLOWS = ("embedding", "fill")
"""Operators whose attribute `dtype` is the activation dtype."""


@dataclass(frozen=True, eq=False)
class Control:
    """A change that must give a clearly different result: inputs and attributes that replace
    the case's own. Where the comparison would not notice it, it would notice nothing."""

    text: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """One call as data. inputs: arrays by argument, CacheArrays for a cache, weights dense.

    Arrays may be strided views where the signature's layout allows it: who runs the case keeps
    their strides. control: None where there is nothing to compare (no rows).
    """

    op: str
    name: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    control: Control | None = None
    dtype: DType = DType.FLOAT32

    def with_dtype(self, dtype: DType) -> Case:
        """The same with every float of a variable dtype in that dtype, strides kept."""
        control = self.control
        if control is not None:
            control = replace(control, inputs=self._cast(control.inputs, dtype))
        attrs = dict(self.attrs)
        if self.op in _DTYPE_FOLLOWS and attrs["dtype"] == self.dtype.value:
            attrs["dtype"] = dtype.value
        inputs = self._cast(self.inputs, dtype)
        return replace(self, inputs=inputs, attrs=attrs, control=control, dtype=dtype)

    def _cast(self, inputs: Mapping[str, Any], dtype: DType) -> dict[str, Any]:
        return {name: self._cast_one(name, value, dtype) for name, value in inputs.items()}

    def _cast_one(self, name: str, value: Any, dtype: DType) -> Any:
        if value is None or not CATALOGUE[self.op].arg(name).dtype.isupper():
            return value
        if isinstance(value, CacheArrays):
            if dtype.is_scaled:
                return in_dtype(value, NUMPY_DTYPES[dtype])
            return value.mapped(lambda half: _restrided(half, dtype))
        return _restrided(value, dtype) if is_float(value) else value

    def expected(self) -> Result:
        """What the oracle gives."""
        return evaluate(self.op, self.inputs, self.attrs)


def _restrided(array: Array, dtype: DType) -> Array:
    """The array in another dtype, its strides (in elements, none negative) kept."""
    target = NUMPY_DTYPES[dtype]
    steps = [s // array.itemsize for s in array.strides]
    extent = sum((n - 1) * s for n, s in zip(array.shape, steps, strict=True)) + 1
    base = np.zeros(max(extent, 0) if array.size else 0, dtype=target)
    strides = [s * target.itemsize for s in steps]
    view = np.lib.stride_tricks.as_strided(base, array.shape, strides)
    with np.errstate(invalid="ignore"):  # a NaN among floats of which the cache alone is kept
        view[...] = array
    return view
