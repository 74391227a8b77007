"""Random weights in ggml's larger blocks and in groups, decoded one element at a time."""

from __future__ import annotations

from functools import partial

import numpy as np


def _half(rng, low, high, *shape):
    return rng.uniform(low, high, shape).astype(np.float16)


def _bytes(rng, *shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def _raw(n, *parts):
    return np.concatenate([p.view(np.uint8) for p in parts], axis=1).reshape(n, -1)


def _six_bits(packed):
    """12 bytes -> 8 scales and 8 minima of 6 bits."""
    s = packed.astype(np.int64)
    scale, low = np.empty((len(s), 8)), np.empty((len(s), 8))
    for j in range(4):
        scale[:, j], low[:, j] = s[:, j] & 63, s[:, j + 4] & 63
        scale[:, j + 4] = (s[:, j + 8] & 15) | (s[:, j] >> 6) << 4
        low[:, j + 4] = (s[:, j + 8] >> 4) | (s[:, j + 4] >> 6) << 4
    return scale, low


def _k(rng, n, k, high):
    """q4_k, q5_k (high: the fifth bits)."""
    blocks = n * k // 256
    d, dmin = _half(rng, 0.001, 0.002, blocks, 1), _half(rng, 0.001, 0.002, blocks, 1)
    packed, fifth, low = _bytes(rng, blocks, 12), _bytes(rng, blocks, 32), _bytes(rng, blocks, 128)
    scale, minimum = _six_bits(packed)
    values = np.empty((blocks, 256))
    for e in range(256):
        byte = low[:, e // 64 * 32 + e % 32].astype(np.int64)
        q = byte >> 4 if e % 64 >= 32 else byte & 15
        if high:
            q = q | (fifth[:, e % 32].astype(np.int64) >> (e // 32) & 1) << 4
        run = e // 32
        values[:, e] = d[:, 0].astype(float) * scale[:, run] * q
        values[:, e] -= dmin[:, 0].astype(float) * minimum[:, run]
    parts = (d, dmin, packed, fifth, low) if high else (d, dmin, packed, low)
    return _raw(n, *parts), values.reshape(n, k)


def _q6_k(rng, n, k):
    blocks = n * k // 256
    low, high = _bytes(rng, blocks, 128), _bytes(rng, blocks, 64)
    scale = rng.integers(-128, 128, (blocks, 16)).astype(np.int8)
    d = _half(rng, 0.0001, 0.0002, blocks, 1)
    values = np.empty((blocks, 256))
    for e in range(256):
        half, within = e // 128, e % 128
        byte = low[:, half * 64 + within % 64].astype(np.int64)
        q = byte >> 4 if within >= 64 else byte & 15
        bits = high[:, half * 32 + within % 32].astype(np.int64) >> (within // 32 * 2) & 3
        values[:, e] = d[:, 0].astype(float) * scale[:, e // 16] * ((q | bits << 4) - 32)
    return _raw(n, low, high, scale, d), values.reshape(n, k)


def _q5(rng, n, k, minimum):
    blocks = n * k // 32
    d, m = _half(rng, 0.01, 0.1, blocks, 1), _half(rng, -1, 0, blocks, 1)
    fifth, low = _bytes(rng, blocks, 4), _bytes(rng, blocks, 16)
    bits = np.unpackbits(fifth, axis=1, bitorder="little").astype(np.int64)
    q = np.concatenate([low & 15, low >> 4], axis=1) | bits << 4
    if minimum:
        return _raw(n, d, m, fifth, low), (d.astype(float) * q + m.astype(float)).reshape(n, k)
    return _raw(n, d, fifth, low), (d.astype(float) * (q - 16)).reshape(n, k)


def _grouped(rng, n, k, bits, group, ordered=False):
    groups = n * k // group
    d, z = _half(rng, 0.01, 0.1, groups, 1), rng.integers(0, 2**bits, (groups, 1)).astype(np.uint8)
    q = rng.integers(0, 2**bits, (groups, group)).astype(np.uint8)
    values = (d.astype(float) * (q.astype(float) - z)).reshape(n, k)
    codes = q
    if bits == 4:
        halves = q.reshape(-1, 2, 16)
        codes = (halves[:, 0] | halves[:, 1] << 4).reshape(groups, -1)
    raw = _raw(n, d, z, codes).reshape(-1)
    if not ordered:
        return raw, values
    order = rng.permutation(k).astype(np.int32)
    whole = np.empty_like(values)
    whole[:, order] = values
    return np.concatenate([order.view(np.uint8), raw]), whole


MAKERS = {
    "q4_k": partial(_k, high=False),
    "q5_k": partial(_k, high=True),
    "q6_k": _q6_k,
    "q5_0": partial(_q5, minimum=False),
    "q5_1": partial(_q5, minimum=True),
    "u4g32": partial(_grouped, bits=4, group=32),
    "u4g128": partial(_grouped, bits=4, group=128),
    "u8g64": partial(_grouped, bits=8, group=64),
    "u8g128o": partial(_grouped, bits=8, group=128, ordered=True),
    "u4g64o": partial(_grouped, bits=4, group=64, ordered=True),
}
"""Format -> maker of (bytes, values float64 [n, k])."""
