"""Codes of 4 or 8 bits in groups along K that share a scale and a zero point: "u4g128".

A group is a float16 scale, a byte of zero point and its codes; contract/formats.py tells it whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anychip.contract.formats import Grouped
from anychip.model.packing.fields import (
    Bytes,
    Floats,
    codes,
    half,
    half_bytes,
    nibbles,
    packed_nibbles,
    steps,
)


def decode_grouped(kind: Grouped, raw: Bytes, columns: int) -> Floats:
    """All bytes of a weight -> [rows, columns]; x = d * (q - z).

    Raises ValueError where the order of an ordered format is not one of all columns.
    """
    head = 4 * columns if kind.ordered else 0
    groups = raw[head:].reshape(-1, kind.group_bytes)
    values = unpacked_codes(kind, groups[:, 3:]).astype(np.float32)
    values -= groups[:, 2:3]
    values *= half(groups, 0)
    rows = values.reshape(-1, columns)
    return _restored(rows, raw[:head].view("<i4")) if kind.ordered else rows


def encode_grouped(kind: Grouped, values: Floats) -> Bytes:
    """[rows, K] -> bytes: 2 ** bits - 1 steps from the smallest value to the largest, 0 among them.

    An ordered format gets its columns by falling magnitude, so that alike ones share a group.
    """
    if not kind.ordered:
        return _group_bytes(kind, values)
    order = np.argsort(-np.abs(values).max(axis=0), kind="stable").astype("<i4")
    return np.concatenate([order.view(np.uint8), _group_bytes(kind, values[:, order])])


def pack_groups(kind: Grouped, counts: Bytes, scales: Floats, zeros: Bytes) -> Bytes:
    """Codes [rows, K], scales and zero points [rows, K / group] -> the rows as bytes, flat.

    Scales must be exact in float16: they are stored as such.
    """
    packed = counts.reshape(-1, kind.group)
    if kind.bits == 4:
        packed = packed_nibbles(packed.reshape(-1, 32)).reshape(len(packed), -1)
    out = np.empty((len(packed), kind.group_bytes), np.uint8)
    out[:, :2] = half_bytes(scales.reshape(-1, 1))
    out[:, 2] = zeros.reshape(-1)
    out[:, 3:] = packed
    return out.reshape(-1)


def unpacked_codes(kind: Grouped, packed: Bytes) -> Bytes:
    """Codes of groups [groups, bytes] -> [groups, group], each 0 to 2 ** bits - 1."""
    if kind.bits == 8:
        return packed
    return nibbles(packed.reshape(-1, 16)).reshape(-1, kind.group)


def _restored(rows: Floats, order: npt.NDArray[np.signedinteger]) -> Floats:
    if not np.array_equal(np.sort(order), np.arange(rows.shape[1])):
        raise ValueError(f"the order of its columns is not one of all {rows.shape[1]}")
    values = np.empty_like(rows)
    values[:, order] = rows
    return values


def _group_bytes(kind: Grouped, values: Floats) -> Bytes:
    groups = values.reshape(-1, kind.group)
    most = 2**kind.bits - 1
    low = np.minimum(groups.min(axis=1, keepdims=True), 0)
    high = np.maximum(groups.max(axis=1, keepdims=True), 0)
    scales = half(half_bytes((high - low) / np.float32(most)), 0)
    zeros = codes(steps(-low, scales), most)
    counts = codes(steps(groups, scales) + zeros, most)
    return pack_groups(kind, counts, scales, zeros)
