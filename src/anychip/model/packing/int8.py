"""int8 weights for int8 activations: "w8a8" and "w8a8_static".

A row is a float32 scale and K int8; contract/formats.py tells it whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.model.packing.fields import LEAST, Bytes, Floats


@dataclass(frozen=True)
class Activations:
    """How a static product rounds what it is given: q = clamp(round(x / scale) + zero)."""

    scale: float
    zero: int

    def head(self) -> Bytes:
        """The 8 bytes before the first row."""
        scale = np.array([self.scale], "<f4").view(np.uint8)
        return np.concatenate([scale, np.array([self.zero], "<i4").view(np.uint8)])


NORMED = Activations(1 / 16, 0)
"""Reaches 8 either way, which the elements of a normed vector hardly leave."""


def decode_int8(raw: Bytes, columns: int, *, static: bool) -> Floats:
    """All bytes of a weight -> [rows, columns]; x = scale * q."""
    rows = raw[8 if static else 0 :].reshape(-1, 4 + columns)
    values = rows[:, 4:].view(np.int8).astype(np.float32)
    values *= np.ascontiguousarray(rows[:, :4]).view("<f4")
    return values


def encode_int8(values: Floats, activations: Activations | None = None) -> Bytes:
    """[rows, K] -> bytes; the largest magnitude of a row becomes 127. Static with `activations`.

    Ties go to even, as compressed-tensors has them. They are common: bfloat16 has few numbers, and
    half of the largest one is a tie.
    """
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scales[scales < LEAST] = 0
    counts = values / np.where(scales == 0, np.float32(1), scales)
    np.rint(counts, out=counts)
    return pack_int8(counts.astype(np.int8), scales, activations)


def pack_int8(
    counts: npt.NDArray[np.int8], scales: Floats, activations: Activations | None
) -> Bytes:
    """int8 [rows, K] and a scale for each row [rows, 1] -> all bytes of a weight, flat."""
    scale_bytes = np.ascontiguousarray(scales, "<f4").view(np.uint8)
    rows = np.hstack([scale_bytes, counts.view(np.uint8)]).reshape(-1)
    return rows if activations is None else np.concatenate([activations.head(), rows])
