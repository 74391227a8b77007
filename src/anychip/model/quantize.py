"""Floats into weight formats: what `formats.dequantize` undoes, up to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anychip.contract.formats import BLOCK_FORMATS, PLAIN_FORMATS
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.formats import Bytes, Floats, plain_weight
from anychip.model.mapped import SUPPORTED_FORMATS


def quantize(values: Floats, format: str) -> HostWeight:
    """float32 values [.., K] in any weight format, each element at the nearest step of its block.

    Raises UnsupportedModel for an unknown format, CheckpointError where K does not fill blocks.
    """
    if format in PLAIN_FORMATS:
        return plain_weight(values, format)
    if format not in BLOCK_FORMATS:
        raise unsupported("weight format", format, SUPPORTED_FORMATS)
    elements, _ = BLOCK_FORMATS[format]
    if values.shape[-1] % elements:
        raise CheckpointError(
            f"rows of {values.shape[-1]} elements do not fill blocks of {elements} ({format})"
        )
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, elements)
    raw = np.ascontiguousarray(_BLOCKS[format](blocks)).reshape(-1)
    return HostWeight(format, tuple(values.shape), raw.data.toreadonly())


def _steps(values: Floats, step: Floats) -> Floats:
    """How many steps each value is, to the nearest one; 0 where all of a block is 0."""
    inverse = np.divide(1.0, step, out=np.zeros_like(step), where=step != 0)
    counts: Floats = np.floor(values * inverse + np.float32(0.5))
    return counts


def _half(column: Floats) -> Bytes:
    """[blocks, 1] as the two bytes of a float16."""
    return np.ascontiguousarray(column).astype("<f2").view(np.uint8)


def _packed(counts: Floats) -> Bytes:
    """32 counts of 0 to 15 a block as 16 bytes: elements 0..15 low, 16..31 high."""
    nibbles = counts.clip(0, 15).astype(np.uint8)
    packed: Bytes = np.left_shift(nibbles[:, 16:], 4, dtype=np.uint8)
    packed |= nibbles[:, :16]
    return packed


def _q8_0(blocks: Floats) -> Bytes:
    step = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    counts = _steps(blocks, step).clip(-127, 127).astype(np.int8)
    return np.hstack([_half(step), counts.view(np.uint8)])


def _q4_0(blocks: Floats) -> Bytes:
    """The value of largest magnitude becomes -8 steps, whatever its sign."""
    where = np.abs(blocks).argmax(axis=1)[:, None]
    step = np.take_along_axis(blocks, where, axis=1) / np.float32(-8)
    return np.hstack([_half(step), _packed(_steps(blocks, step) + 8)])


def _q4_1(blocks: Floats) -> Bytes:
    low = blocks.min(axis=1, keepdims=True)
    step = (blocks.max(axis=1, keepdims=True) - low) / np.float32(15)
    return np.hstack([_half(step), _half(low), _packed(_steps(blocks - low, step))])


_BLOCKS: dict[str, Callable[[Floats], Bytes]] = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1}
