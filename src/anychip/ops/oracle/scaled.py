"""The oracle of caches whose vectors are held in one byte an element, each with its own scale.

An array of such a cache is [..., D + 4] of int8 or float8_e4m3: D elements, then the bytes of the
vector's float32 scale. scale = largest magnitude / largest number of the dtype, in float32; an
element is x / scale, in float32, to the nearest number of the dtype, ties to even, and no further
than its largest. A vector of zeros has the scale 0 and elements of 0. One with an infinity or a NaN
has the scale NaN and elements of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anychip.contract.cache import SCALE_BYTES
from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.oracle.arrays import Array, CacheArrays, wide

_MOST = {NUMPY_DTYPES[DType.INT8]: 127.0, NUMPY_DTYPES[DType.FLOAT8_E4M3]: 448.0}


def is_scaled(half: Array) -> bool:
    """Whether an array of a cache holds scales."""
    return half.dtype in _MOST


def elements(half: Array) -> int:
    """Elements of a vector, without its scale."""
    return int(half.shape[-1]) - (SCALE_BYTES if is_scaled(half) else 0)


def held(rows: Array, dtype: np.dtype[Any]) -> Array:
    """Vectors [..., D] of floats as a scaled cache of this dtype holds them."""
    *outer, dim = rows.shape
    flat = rows.reshape(-1, dim).astype(np.float32)
    made = np.zeros((len(flat), dim + SCALE_BYTES), dtype)
    for vector, place in zip(flat, made, strict=True):
        scale = _scale(vector, dtype)
        place[dim:] = np.array([scale], np.float32).view(dtype)
        if scale > 0:
            place[:dim] = _nearest(vector / scale, dtype)
    return made.reshape(*outer, dim + SCALE_BYTES)


def _scale(vector: Array, dtype: np.dtype[Any]) -> Any:
    if not np.isfinite(vector).all():
        return np.float32(np.nan)
    return np.abs(vector).max(initial=np.float32(0)) / np.float32(_MOST[dtype])


def _nearest(x: Array, dtype: np.dtype[Any]) -> Array:
    """Float32 numbers in the dtype, ties to even, held within its range."""
    inside = np.clip(x, -_MOST[dtype], _MOST[dtype])
    whole = np.round(inside) if dtype == NUMPY_DTYPES[DType.INT8] else inside
    found: Array = whole.astype(dtype)
    return found


def scales(half: Array) -> Array:
    """The scales [...] of vectors [..., D + 4], a copy."""
    found: Array = np.ascontiguousarray(half[..., -SCALE_BYTES:]).view(np.float32)[..., 0]
    return found


def read(half: Array) -> Array:
    """What the vectors of an array of a cache stand for, float64; of any other floats the same."""
    if not is_scaled(half):
        return wide(half)
    with np.errstate(invalid="ignore"):  # a scale of a slot that was never written may be anything
        elements: Array = half[..., :-SCALE_BYTES].astype(np.float64)
        return elements * scales(half)[..., None].astype(np.float64)


def with_scales(half: Array, changed: Array) -> Array:
    """The same elements with other scales."""
    other: Array = half.copy()
    other[..., -SCALE_BYTES:] = changed.astype(np.float32)[..., None].view(half.dtype)
    return other


def in_dtype(cache: CacheArrays, dtype: np.dtype[Any]) -> CacheArrays:
    """A cache of floats in the dtype of a cache."""
    scaled = dtype in _MOST
    return cache.mapped(lambda half: held(half, dtype) if scaled else half.astype(dtype))
