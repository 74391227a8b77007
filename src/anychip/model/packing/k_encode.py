"""float32 into ggml's blocks of 256: the simplest choice of scales, no search for better ones.

What `k_quants` undoes; the layouts are told there.
"""

from __future__ import annotations

import numpy as np

from anychip.model.packing.fields import (
    Bytes,
    Floats,
    bits,
    codes,
    half,
    half_bytes,
    largest,
    lifted,
    steps,
)


def encode_q2_k(values: Floats) -> Bytes:
    """16 small blocks between their smallest value and their largest in 3 steps."""
    scales, lows, counts = _with_minima(values, 16, 3, 15)
    packed = _two_bit_bytes(counts)
    return np.hstack([scales[0] | lifted(lows[0], 4), packed, scales[1], lows[1]])


def encode_q3_k(values: Floats) -> Bytes:
    """16 small blocks, -4 steps for the value of largest magnitude of each."""
    whole, scale, counts = _about(values, 4, 31)
    packed = [_high_bit_bytes(bits(counts, 2, 1)), _two_bit_bytes(bits(counts, 0, 2))]
    scales = _sixteen_scale_bytes((whole + 32).astype(np.uint8))
    return np.hstack([*packed, scales, scale])


def encode_q4_k(values: Floats) -> Bytes:
    """8 small blocks between their smallest value and their largest in 15 steps."""
    scales, lows, counts = _with_minima(values, 8, 15, 63)
    packed = _pair_nibble_bytes(counts)
    return np.hstack([scales[1], lows[1], _eight_scale_bytes(scales[0], lows[0]), packed])


def encode_q5_k(values: Floats) -> Bytes:
    """8 small blocks between their smallest value and their largest in 31 steps."""
    scales, lows, counts = _with_minima(values, 8, 31, 63)
    packed = [_high_bit_bytes(bits(counts, 4, 1)), _pair_nibble_bytes(bits(counts, 0, 4))]
    return np.hstack([scales[1], lows[1], _eight_scale_bytes(scales[0], lows[0]), *packed])


def encode_q6_k(values: Floats) -> Bytes:
    """16 small blocks, -32 steps for the value of largest magnitude of each."""
    whole, scale, counts = _about(values, 32, 127)
    low = bits(counts, 0, 4).reshape(-1, 2, 2, 64)
    packed = (low[:, :, 0] | lifted(low[:, :, 1], 4)).reshape(-1, 128)
    scales = whole.astype(np.int8).view(np.uint8)
    return np.hstack([packed, _two_bit_bytes(bits(counts, 4, 2)), scales, scale])


_Column = tuple[Bytes, Bytes]
"""Whole-number factors of small blocks, and the float16 that scales them as bytes."""


def _with_minima(values: Floats, small: int, most: int, top: int) -> tuple[_Column, _Column, Bytes]:
    """Scales and minima of `small` small blocks (factors up to `top`), and counts 0..`most`."""
    blocks = values.reshape(len(values), small, -1)
    low = np.minimum(blocks.min(axis=2), 0)
    step = (np.maximum(blocks.max(axis=2), 0) - low) / np.float32(most)
    scales, step = _whole(step, top)
    lows, depth = _whole(-low, top)
    counts = steps((blocks + depth[:, :, None]).reshape(-1, blocks.shape[2]), step.reshape(-1, 1))
    return scales, lows, codes(counts, most).reshape(len(values), -1)


def _whole(factors: Floats, top: int) -> tuple[_Column, Floats]:
    """Factors from 0 as whole numbers up to `top` with a float16 scale, and what they then are."""
    scale = half_bytes(factors.max(axis=1, keepdims=True) / np.float32(top))
    held = half(scale, 0)
    whole = codes(steps(factors, held), top)
    return (whole, scale), held * whole


def _about(values: Floats, middle: int, top: int) -> tuple[Floats, Bytes, Bytes]:
    """16 small blocks around 0: factors up to `top` of either sign, float16 scale, counts."""
    blocks = values.reshape(-1, values.shape[1] // 16)
    step = (largest(blocks) / np.float32(-middle)).reshape(len(values), 16)
    scale = half_bytes(np.abs(step).max(axis=1, keepdims=True) / np.float32(top))
    held = half(scale, 0)
    whole = steps(step, held).clip(-top, top)
    counts = steps(blocks, (held * whole).reshape(-1, 1)) + middle
    return whole, scale, codes(counts, 2 * middle - 1).reshape(len(values), -1)


def _two_bit_bytes(counts: Bytes) -> Bytes:
    return _joined(counts.reshape(-1, 2, 4, 32), 2).reshape(len(counts), 64)


def _high_bit_bytes(counts: Bytes) -> Bytes:
    return _joined(counts.reshape(-1, 1, 8, 32), 1).reshape(len(counts), 32)


def _pair_nibble_bytes(counts: Bytes) -> Bytes:
    return _joined(counts.reshape(-1, 4, 2, 32), 4).reshape(len(counts), 128)


def _eight_scale_bytes(scales: Bytes, lows: Bytes) -> Bytes:
    first, second = (s[:, :4] | lifted(bits(s[:, 4:], 4, 2), 6) for s in (scales, lows))
    last = bits(scales[:, 4:], 0, 4) | lifted(lows[:, 4:], 4)
    return np.hstack([first, second, last])


def _sixteen_scale_bytes(scales: Bytes) -> Bytes:
    low = bits(scales[:, :8], 0, 4) | lifted(scales[:, 8:], 4)
    return np.hstack([low, _joined(bits(scales, 4, 2).reshape(-1, 1, 4, 4), 2)[:, 0]])


def _joined(parts: Bytes, width: int) -> Bytes:
    """[blocks, halves, parts, bytes] of `width` bits each, the first part lowest, to bytes."""
    shifts = np.arange(0, parts.shape[2] * width, width, dtype=np.uint8)[:, None]
    joined: Bytes = np.bitwise_or.reduce(lifted(parts, shifts), axis=2)
    return joined
