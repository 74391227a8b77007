"""Blocks of 32 whose nibbles name entries of a table: iq4_nl and mxfp4."""

from __future__ import annotations

import numpy as np

from anychip.model.packing.fields import (
    Bytes,
    Floats,
    half,
    half_bytes,
    largest,
    nibbles,
    packed_nibbles,
)

_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""ggml's steps for normally distributed weights (kvalues_iq4nl)."""

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""A sign bit over these, as the OCP microscaling formats define e2m1."""

_BIAS = 127
"""An e8m0 byte e is 2 ** (e - 127)."""


def decode_iq4_nl(blocks: Bytes) -> Floats:
    """x = d * table[q]."""
    values = np.array(_IQ4, np.float32)[nibbles(blocks[:, 2:])]
    values *= half(blocks, 0)
    return values


def decode_mxfp4(blocks: Bytes) -> Floats:
    """x = 2 ** (e - 127) * e2m1. The byte 255, which means no number, is 2 ** 128 as in ggml."""
    # A table of whole numbers and half the scale: 2 ** 128 is beyond float32, its half is not.
    values = (_signed() * 2)[nibbles(blocks[:, 1:])]
    values *= np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - _BIAS - 1)
    return values


def encode_iq4_nl(values: Floats) -> Bytes:
    """The value of largest magnitude becomes -127 steps, the others the nearest entry."""
    step = largest(values) / np.float32(-127)
    scale = half_bytes(step)
    return np.hstack([scale, packed_nibbles(_nearest(values, half(scale, 0), np.array(_IQ4)))])


def encode_mxfp4(values: Floats) -> Bytes:
    """The scale is the power of two that puts the largest magnitude between 4 and 8."""
    most = np.abs(values).max(axis=1, keepdims=True)
    exponent = np.frexp(most)[1] - 1 - 2
    exponent = np.where(most > 0, exponent, -_BIAS).clip(-_BIAS, 254 - _BIAS)
    scale = np.ldexp(np.float32(1), exponent)
    head = (exponent + _BIAS).astype(np.uint8)
    return np.hstack([head, packed_nibbles(_nearest(values, scale, _signed()))])


def _signed() -> Floats:
    """All 16 numbers of e2m1; its zero with a sign is plain 0, as in ggml."""
    positive = np.array(_E2M1, np.float32)
    return np.concatenate([positive, 0 - positive])


def _nearest(values: Floats, scale: Floats, table: np.ndarray) -> Bytes:
    """The entry of the table nearest to each value; the first of equals. A scale of 0 takes 0."""
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
    wanted = values * inverse
    best = np.zeros(values.shape, np.uint8)
    distance = np.abs(wanted - np.float32(table[0]))
    for code, entry in enumerate(table[1:].astype(np.float32), 1):
        here = np.abs(wanted - entry)
        np.copyto(best, code, where=here < distance, casting="unsafe")
        np.minimum(distance, here, out=distance)
    return best
