"""Random weights as a checkpoint holds them, for every format of the contract."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.contract.formats import BLOCK_FORMATS
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.formats import dequantize
from anychip.model.quantize import quantize
from anychip.ops.cases.draw import Draw, draw

CODED = ("q8_0", "q4_0", "q4_1")
"""Formats whose codes are drawn as bytes, so that each one comes up; the others' are of values."""

STEP = 1 / 32
"""Of activations that a drawn "w8a8_static" weight rounds, unless said otherwise: reaches 4 either
way."""

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of one weight, stacked along N. raw: their bytes, which may be overwritten."""

    parts: tuple[HostWeight, ...]
    raw: tuple[Bytes, ...]

    @property
    def dense(self) -> Floats:
        """All rows in float32, from the bytes as they are now."""
        return np.concatenate([dequantize(part) for part in self.parts])


def random_parts(
    format: str, rows: tuple[int, ...], columns: int, seed: str, step: float = STEP
) -> Parts:
    """One part for each number of rows, of values around columns**-0.5. step: see STEP."""
    raw = tuple(
        _bytes(format, (count, columns), f"{seed} {number}", step)
        for number, count in enumerate(rows)
    )
    shapes = ((count, columns) for count in rows)
    parts = (HostWeight(format, s, r.data) for s, r in zip(shapes, raw, strict=True))
    return Parts(tuple(parts), raw)


def _bytes(format: str, shape: Shape, seed: str, step: float) -> Bytes:
    source, spread = draw(f"{format} {seed}"), shape[1] ** -0.5
    if format in CODED:
        return _coded(format, shape, source)
    held = quantize(source.normal(*shape, scale=spread), format)
    raw: Bytes = np.frombuffer(held.data, np.uint8).copy()
    if format == "w8a8_static":
        raw[:4] = np.array([step], "<f4").view(np.uint8)
    return raw


def _coded(format: str, shape: Shape, source: Draw) -> Bytes:
    elements, nbytes = BLOCK_FORMATS[format]
    blocks, spread = shape[0] * shape[1] // elements, shape[1] ** -0.5
    raw = source.integers(blocks, nbytes, high=256).astype(np.uint8)
    steps = 64.0 if format == "q8_0" else 4.0  # typical size of a quantized value
    scale = source.uniform(blocks, low=0.5, high=1.5) * np.float32(spread / steps)
    raw[:, :2] = scale.astype(np.float16)[:, None].view(np.uint8)
    if format == "q4_1":
        smallest = (-8 * scale + source.normal(blocks, scale=spread / 4)).astype(np.float16)
        raw[:, 2:4] = smallest[:, None].view(np.uint8)
    return raw.reshape(-1)
