"""Weights in every format: raw bytes as a checkpoint holds them, and the values they stand for."""

from __future__ import annotations

import numpy as np
from cpu_blocks import MAKERS
from cpu_calls import BF16

from anychip.contract.formats import block_elements

PLAIN = {"float32": np.dtype(np.float32), "bfloat16": BF16, "float16": np.dtype(np.float16)}
FORMATS = (*PLAIN, "q8_0", "q4_0", "q4_1", *MAKERS)


def whole_columns(name, k):
    """The first number of columns from k on that is whole blocks."""
    block = block_elements(name)
    return -(-k // block) * block


def make_weight(name, n, k, seed=0):
    """(bytes [n, row bytes], values float64 [n, k])."""
    rng = np.random.default_rng(seed)
    if name in PLAIN:
        plain = rng.standard_normal((n, k)).astype(np.float32).astype(PLAIN[name])
        return plain.view(np.uint8), plain.astype(np.float64)
    if name in MAKERS:
        return MAKERS[name](rng, n, k)
    blocks = n * k // 32
    scale = rng.uniform(0.01, 0.1, (blocks, 1)).astype(np.float16)
    d = scale.astype(np.float64)
    if name == "q8_0":
        q = rng.integers(-128, 128, (blocks, 32)).astype(np.int8)
        return _joined(n, scale, q), (d * q).reshape(n, k)
    q = rng.integers(0, 16, (blocks, 32)).astype(np.uint8)
    nibbles = q[:, :16] | q[:, 16:] << 4
    if name == "q4_0":
        return _joined(n, scale, nibbles), (d * (q.astype(np.float64) - 8)).reshape(n, k)
    low = rng.uniform(-1, 0, (blocks, 1)).astype(np.float16)
    return _joined(n, scale, low, nibbles), (d * q + low.astype(np.float64)).reshape(n, k)


def _joined(n, *parts):
    return np.concatenate([p.view(np.uint8) for p in parts], axis=1).reshape(n, -1)
