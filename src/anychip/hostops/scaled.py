"""Vectors held in one byte an element, each with its float32 scale behind it.

In an array of such a cache the last dimension is a vector's head dim elements, then the four bytes
of its scale. Element i stands for element * scale; a scale is the vector's largest magnitude over
the largest number of the dtype, so 0 for a vector of zeros, and NaN where the vector holds an
infinity or a NaN: what reads it then gives NaN and nothing else.
"""

from __future__ import annotations

import numpy as np

from anychip.contract.cache import SCALE_BYTES
from anychip.contract.dtype import DType
from anychip.hostops.views import NUMPY_DTYPES, Array, Floats, floats

LARGEST = {
    NUMPY_DTYPES[DType.INT8]: np.float32(127),
    NUMPY_DTYPES[DType.FLOAT8_E4M3]: np.float32(448),
}
"""The largest number of each dtype that a cache may hold with scales."""


def is_scaled(half: Array) -> bool:
    """Whether an array of a cache holds scales: its dtype says so."""
    return half.dtype in LARGEST


def packed(rows: Array, dtype: np.dtype[np.generic]) -> Array:
    """Vectors [..., D] as they are held: [..., D + SCALE_BYTES] of `dtype`."""
    x, most = floats(rows), LARGEST[dtype]
    scale = np.abs(x).max(axis=-1, keepdims=True) / most
    scale = np.where(np.isfinite(x).all(axis=-1, keepdims=True), scale, np.float32(np.nan))
    steps = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    steps = np.clip(np.rint(steps) if dtype.kind == "i" else steps, -most, most)
    held = np.empty((*x.shape[:-1], x.shape[-1] + SCALE_BYTES), dtype)
    held[..., :-SCALE_BYTES] = steps.astype(dtype)
    held[..., -SCALE_BYTES:] = np.ascontiguousarray(scale, np.float32).view(dtype)
    return held


def values(held: Array) -> Floats:
    """What vectors [..., D + SCALE_BYTES] stand for: [..., D] in float32."""
    scale = np.ascontiguousarray(held[..., -SCALE_BYTES:]).view(np.float32)
    return floats(held[..., :-SCALE_BYTES]) * scale
