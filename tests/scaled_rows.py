"""Writes into a scaled cache that a chip's own `kv_write` is asked for, and the oracle's bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anychip.contract.dtype import DType
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.scaled import held, in_dtype

SCALED = (DType.INT8, DType.FLOAT8_E4M3)
ROWS = 200

Compute = Callable[[Mapping[str, Any]], CacheArrays]
"""What a chip makes of the inputs of one `kv_write`: its cache."""


def assert_bytes_are_the_oracles(compute: Compute, dim: int, dtype: DType) -> None:
    """For numbers of every size, those that have no size and those that have no scale included."""
    source, kind = np.random.default_rng(dim), NUMPY_DTYPES[dtype]
    shape = (ROWS, 2, dim)
    k, v = (
        source.normal(size=shape) * 10 ** source.uniform(-6, 0, shape) * 10.0 ** (9 * sign)
        for sign in (-1, 1)
    )
    k[3], v[4, 1] = 0.0, -0.0
    k[5, 1, 2], v[6, 0, 1], v[7, 1, 0] = np.inf, np.nan, -np.inf
    k[8], k[9, 0, :3] = 1e-44, (1e-45, -2.8e-45, 2e-43)
    k, v = k.astype(np.float32), v.astype(np.float32)
    rows = np.zeros((16, 16, 2, dim), np.float32)
    cache = in_dtype(CacheArrays(rows, rows), kind)
    slots = source.permutation(256)[:ROWS].astype(np.int32)
    found = compute({"cache": cache, "k": k, "v": v, "slots": slots})
    for half, given in ((found.k, k), (found.v, v)):
        flat = half.reshape(256, 2, dim + 4)
        assert flat[slots].tobytes() == held(given, kind).tobytes()
