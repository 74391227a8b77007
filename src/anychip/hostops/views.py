"""Numpy arrays over the bytes of a buffer."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.tensor import Tensor

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype(np.float32),
    DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.INT32: np.dtype(np.int32),
    DType.INT8: np.dtype(np.int8),
    DType.UINT8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
    DType.FLOAT8_E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
}


_DTYPES = {found: dtype for dtype, found in NUMPY_DTYPES.items()}


def dtype_of(array: Array) -> DType:
    """The contract's name of an array's dtype. KeyError where it has none."""
    return _DTYPES[array.dtype]


def array_view(raw: npt.NDArray[np.uint8], tensor: Tensor) -> Array:
    """The tensor as an array over `raw`, the bytes of its buffer; nothing is copied."""
    dtype = NUMPY_DTYPES[tensor.dtype]
    if tensor.size == 0:
        return np.empty(tensor.shape, dtype)
    strides = tuple(s * dtype.itemsize for s in tensor.strides)
    view: Array = np.ndarray(tensor.shape, dtype, raw.data, tensor.offset, strides)
    return view


def floats(x: Array) -> Floats:
    """Row-major float32 values of any array; the array itself where it is that already."""
    return np.ascontiguousarray(x, dtype=np.float32)


def exact_index(index: Array, rows: int, name: str) -> Array:
    """The index, once every entry is known to lie in 0 .. rows - 1. Raises IndexError."""
    if index.size and (int(index.min()) < 0 or int(index.max()) >= rows):
        bad = index[(index < 0) | (index >= rows)].ravel()[0]
        raise IndexError(f"{name}: index {bad} must lie in 0 .. {rows - 1}")
    return index
