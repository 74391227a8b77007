"""What the formats are put together from: float16 scales, nibbles, counts of steps.

Blocks are rows of a uint8 array [blocks, bytes]; numbers come as float32 [blocks, elements].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
LEAST = np.finfo(np.float32).tiny
"""Steps below it are none: they have lost digits, and counts of them would leave their range."""


def half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block: float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def half_bytes(column: Floats) -> Bytes:
    """[blocks, 1] as the two bytes of a float16 each."""
    return np.ascontiguousarray(column).astype("<f2").view(np.uint8)


def bits(values: Bytes, at: int | Bytes, count: int) -> Bytes:
    """The `count` bits from bit `at` on of each byte."""
    found: Bytes = np.right_shift(values, at, dtype=np.uint8)
    found &= np.uint8(2**count - 1)
    return found


def lifted(values: Bytes, by: int | Bytes) -> Bytes:
    """Bytes shifted up by so many bits."""
    found: Bytes = np.left_shift(values, by, dtype=np.uint8)
    return found


def nibbles(packed: Bytes) -> Bytes:
    """[blocks, bytes] -> twice as many numbers 0..15: low nibbles of a block, then high ones."""
    count = packed.shape[1]
    values = np.empty((len(packed), 2 * count), np.uint8)
    values[:, :count] = packed & 15
    values[:, count:] = packed >> 4
    return values


def packed_nibbles(counts: Bytes) -> Bytes:
    """The inverse of `nibbles`, for numbers of 0 to 15."""
    count = counts.shape[1] // 2
    return lifted(counts[:, count:], 4) | counts[:, :count]


def steps(values: Floats, step: Floats, middle: int = 0) -> Floats:
    """How many steps each value is above `middle` of them, to the nearest one, ties up; `middle`
    where the step is 0. The sum is made before it is rounded, as ggml does."""
    counts: Floats = values * _inverse(step)
    counts += np.float32(middle + 0.5)
    return np.floor(counts, out=counts)


def signed_steps(values: Floats, step: Floats) -> Floats:
    """The same from 0, ties away from it."""
    counts: Floats = values * _inverse(step)
    counts += np.copysign(np.float32(0.5), counts)
    return np.trunc(counts, out=counts)


def _inverse(step: Floats) -> Floats:
    """0 where the step is 0, or so near to it that no float32 is its inverse."""
    found: Floats = np.divide(1.0, step, out=np.zeros_like(step), where=np.abs(step) >= LEAST)
    return found


def largest(values: Floats) -> Floats:
    """The value of largest magnitude of each row with its sign: [rows, 1]."""
    where = np.abs(values).argmax(axis=1)[:, None]
    found: Floats = np.take_along_axis(values, where, axis=1)
    return found


def codes(counts: Floats, most: int) -> Bytes:
    """Counts cut to 0..most as bytes; the counts are cut too."""
    return np.clip(counts, 0, most, out=counts).astype(np.uint8)
