"""ggml's blocks of 32 with a float16 scale: q8_0, q4_0, q4_1, q5_0, q5_1.

Layouts: contract/formats.py and ggml-common.h. q5: the fifth bits of all 32 elements stand as one
uint32 before the nibbles, bit i for element i.
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
    nibbles,
    packed_nibbles,
    signed_steps,
    steps,
)


def decode_q8_0(blocks: Bytes) -> Floats:
    """x = d * q."""
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= half(blocks, 0)
    return values


def decode_q4_0(blocks: Bytes) -> Floats:
    """x = d * (q - 8)."""
    return _about(blocks, nibbles(blocks[:, 2:]), 8)


def decode_q5_0(blocks: Bytes) -> Floats:
    """x = d * (q - 16)."""
    return _about(blocks, _five(blocks[:, 2:6], blocks[:, 6:]), 16)


def decode_q4_1(blocks: Bytes) -> Floats:
    """x = d * q + m."""
    return _above(blocks, nibbles(blocks[:, 4:]))


def decode_q5_1(blocks: Bytes) -> Floats:
    """x = d * q + m."""
    return _above(blocks, _five(blocks[:, 4:8], blocks[:, 8:]))


def encode_q8_0(values: Floats) -> Bytes:
    """The largest magnitude becomes 127 steps."""
    step = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    counts = signed_steps(values, step).astype(np.int8)
    return np.hstack([half_bytes(step), counts.view(np.uint8)])


def encode_q4_0(values: Floats) -> Bytes:
    """The value of largest magnitude becomes -8 steps, whatever its sign."""
    step = largest(values) / np.float32(-8)
    return np.hstack([half_bytes(step), packed_nibbles(codes(steps(values, step, 8), 15))])


def encode_q5_0(values: Floats) -> Bytes:
    """The value of largest magnitude becomes -16 steps, whatever its sign."""
    step = largest(values) / np.float32(-16)
    return np.hstack([half_bytes(step), _five_bytes(codes(steps(values, step, 16), 31))])


def encode_q4_1(values: Floats) -> Bytes:
    """15 steps from the smallest value to the largest."""
    step, low = _span(values, 15)
    counts = codes(steps(values - low, step), 15)
    return np.hstack([half_bytes(step), half_bytes(low), packed_nibbles(counts)])


def encode_q5_1(values: Floats) -> Bytes:
    """31 steps from the smallest value to the largest."""
    step, low = _span(values, 31)
    counts = codes(steps(values - low, step), 31)
    return np.hstack([half_bytes(step), half_bytes(low), _five_bytes(counts)])


def _about(blocks: Bytes, counts: Bytes, middle: int) -> Floats:
    values = counts.astype(np.float32)
    values -= middle
    values *= half(blocks, 0)
    return values


def _above(blocks: Bytes, counts: Bytes) -> Floats:
    values = counts.astype(np.float32)
    values *= half(blocks, 0)
    values += half(blocks, 2)
    return values


def _five(high: Bytes, low: Bytes) -> Bytes:
    """Fifth bits [blocks, 4] and nibbles [blocks, 16] -> numbers 0..31."""
    fifth = np.unpackbits(np.ascontiguousarray(high), axis=1, bitorder="little")
    return nibbles(low) | lifted(fifth, 4)


def _five_bytes(counts: Bytes) -> Bytes:
    fifth = np.packbits(bits(counts, 4, 1), axis=1, bitorder="little")
    return np.hstack([fifth, packed_nibbles(bits(counts, 0, 4))])


def _span(values: Floats, most: int) -> tuple[Floats, Floats]:
    low = values.min(axis=1, keepdims=True)
    return (values.max(axis=1, keepdims=True) - low) / np.float32(most), low
