"""ggml's blocks of 256 to float32: q2_k to q6_k.

A block is 8 or 16 small blocks with whole-number scales of their own, which a float16 scales.
Layouts: ggml-common.h and the dequantize_row functions of ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from anychip.model.packing.fields import Bytes, Floats, bits, half, lifted


def decode_q2_k(blocks: Bytes) -> Floats:
    """16 bytes of 4-bit scale and 4-bit minimum, 64 of 2-bit q, d, dmin; x = d*s*q - dmin*m."""
    scales = half(blocks, 80) * bits(blocks[:, :16], 0, 4)
    lows = half(blocks, 82) * bits(blocks[:, :16], 4, 4)
    return _scaled(two_bits(blocks[:, 16:80]), scales, lows)


def decode_q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits, 64 of low bits, 12 of 6-bit scales, d; x = d * (s-32) * (q-4)."""
    counts = two_bits(blocks[:, 32:96]) | lifted(high_bits(blocks[:, :32]), 2)
    scales = half(blocks, 108) * (_sixteen_scales(blocks[:, 96:108]).astype(np.float32) - 32)
    return _scaled(counts.astype(np.float32) - 4, scales)


def decode_q4_k(blocks: Bytes) -> Floats:
    """d, dmin, 12 bytes of 6-bit scales and minima, 128 of nibbles; x = d*s*q - dmin*m."""
    return _with_minima(blocks, pair_nibbles(blocks[:, 16:]))


def decode_q5_k(blocks: Bytes) -> Floats:
    """As q4_k, with 32 bytes of fifth bits before the nibbles: bit j for small block j."""
    counts = pair_nibbles(blocks[:, 48:]) | lifted(high_bits(blocks[:, 16:48]), 4)
    return _with_minima(blocks, counts)


def decode_q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low nibbles, 64 of two high bits, 16 int8 scales, d; x = d * s * (q - 32).

    In each half of 128, 64 bytes have elements 0..63 in their low nibbles and the rest high.
    """
    low = bits(blocks[:, :128].reshape(-1, 2, 1, 64), _shifts(0, 4), 4).reshape(-1, 256)
    counts = low | lifted(two_bits(blocks[:, 128:192]), 4)
    scales = half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return _scaled(counts.astype(np.float32) - 32, scales)


def two_bits(packed: Bytes) -> Bytes:
    """[blocks, 64] -> 256 numbers 0..3: each 32 bytes hold 128, 32 for every pair of bits."""
    return bits(packed.reshape(-1, 2, 1, 32), _shifts(0, 2, 4, 6), 2).reshape(-1, 256)


def high_bits(packed: Bytes) -> Bytes:
    """[blocks, 32] -> 256 bits: bit j of byte l belongs to element 32 j + l."""
    return bits(packed.reshape(-1, 1, 32), _shifts(*range(8))[0], 1).reshape(-1, 256)


def pair_nibbles(packed: Bytes) -> Bytes:
    """[blocks, 128] -> 256 numbers 0..15: each 32 bytes hold 32 low, then 32 high."""
    return bits(packed.reshape(-1, 4, 1, 32), _shifts(0, 4), 4).reshape(-1, 256)


def eight_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes -> 8 scales and 8 minima of 6 bits.

    The first four of both lie in the low bits of bytes 0..3 and 4..7; of the last four, the low
    halves are the nibbles of bytes 8..11 and the two high bits those of bytes 0..3 and 4..7.
    """
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = [bits(first, 0, 6), bits(last, 0, 4) | lifted(bits(first, 6, 2), 4)]
    lows = [bits(second, 0, 6), bits(last, 4, 4) | lifted(bits(second, 6, 2), 4)]
    return np.hstack(scales), np.hstack(lows)


def _sixteen_scales(packed: Bytes) -> Bytes:
    """12 bytes -> 16 numbers of 6 bits: nibbles in the first 8 bytes, two high bits in 4 more."""
    low = bits(packed[:, None, :8], _shifts(0, 4)[0], 4).reshape(-1, 16)
    high = bits(packed[:, None, 8:], _shifts(0, 2, 4, 6)[0], 2).reshape(-1, 16)
    return low | lifted(high, 4)


def _with_minima(blocks: Bytes, counts: Bytes) -> Floats:
    scales, lows = eight_scales(blocks[:, 4:16])
    return _scaled(counts, half(blocks, 0) * scales, half(blocks, 2) * lows)


def _scaled(counts: Bytes | Floats, scales: Floats, lows: Floats | None = None) -> Floats:
    """Numbers [blocks, 256] times the scale of their small block, less its minimum."""
    small = counts.reshape(*scales.shape, -1)
    values = small.astype(np.float32)
    values *= scales[:, :, None]
    if lows is not None:
        values -= lows[:, :, None]
    return values.reshape(len(counts), 256)


def _shifts(*by: int) -> Bytes:
    """Shifts along the axis before the last of four."""
    return np.array(by, np.uint8).reshape(1, 1, -1, 1)
