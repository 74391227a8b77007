"""Weight formats by their codes in `kernels/abi.h`, and where parts of a weight lie that cannot
share one row of panels: see `kernels/segments.h`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.chips.cpu.build import CHIP
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.formats import W8A8, grouped, head_bytes
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight

PANEL_FORMATS = {
    name: code
    for code, name in enumerate(
        (
            *("float32", "bfloat16", "float16", "q8_0", "q4_0", "q4_1"),
            *("q4_k", "q5_k", "q6_k", "q5_0", "q5_1"),
            *("u4g32", "u4g64", "u4g128", "u8g32", "u8g64", "u8g128"),
            "w8a8",
        )
    )
}
PARTS = "parts"
"""What a weight is called whose parts have different formats."""
SEGMENTS = 18
SEGMENT_FORMATS = {
    **{f"{name}o": SEGMENTS for name in PANEL_FORMATS if grouped(name)},
    "w8a8_static": SEGMENTS,
    PARTS: SEGMENTS,
}
FORMAT_CODES = PANEL_FORMATS | SEGMENT_FORMATS
"""Codes of storage types and weight formats in abi.h."""
WEIGHT_FORMATS = tuple(name for name in FORMAT_CODES if name != PARTS)

ALIGNMENT = 64
MOST_PRODUCTS = (2**31 - 1) // (255 * 128)
"""Of an int8 weight and activations less their zero point, in one sum of 32 bits."""
SEGMENT = np.dtype(
    [(name, "<i8") for name in ("rows", "format", "panels", "order")]
    + [("scale", "<f4"), ("zero", "<i4")]
)
"""A struct Segment."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Place:
    """A part: its panels' format, and where its order (0: none) and its panels begin."""

    format: str
    rows: int
    order: int
    panels: int


@dataclass(frozen=True)
class Segments:
    """All parts behind their table. nbytes: of everything."""

    places: tuple[Place, ...]
    nbytes: int

    def table(self, parts: tuple[HostWeight, ...]) -> Bytes:
        """A struct Segments."""
        rows = [
            (place.rows, PANEL_FORMATS[place.format], place.panels, place.order, *rounding_of(part))
            for part, place in zip(parts, self.places, strict=True)
        ]
        count = np.array([len(rows)], "<i8").view(np.uint8)
        return np.concatenate([count, np.array(rows, SEGMENT).view(np.uint8)])


def panel_format(name: str) -> str:
    """The format of the panels that hold a part's rows."""
    found = grouped(name)
    if found and found.ordered:
        return name[:-1]
    return "w8a8" if name == "w8a8_static" else name


def common_format(formats: tuple[str, ...]) -> str:
    """What a weight of parts in these formats is called."""
    return formats[0] if len(set(formats)) == 1 else PARTS


def laid_out(
    formats: tuple[str, ...], shapes: tuple[Shape, ...], panels: Callable[[str, Shape], int]
) -> Segments:
    """panels: bytes of the panels of one format and shape."""
    at, places = _up(8 + len(formats) * SEGMENT.itemsize), []
    for name, shape in zip(formats, shapes, strict=True):
        found, inner = grouped(name), panel_format(name)
        ordered = found is not None and found.ordered
        start = at + (_up(head_bytes(name, shape[1])) if ordered else 0)
        places.append(Place(inner, shape[0], at if ordered else 0, start))
        at = start + _up(panels(inner, shape))
    return Segments(tuple(places), at)


def order_of(part: HostWeight) -> npt.NDArray[np.int32]:
    """The order that an ordered part begins with. Raises ChipError where it is none of all K."""
    columns = part.shape[1]
    order: npt.NDArray[np.int32] = np.frombuffer(part.data, "<i4", columns)
    if not np.array_equal(np.sort(order), np.arange(columns)):
        text = f"a {part.format} weight's order of columns is not one of all {columns}"
        raise invalid(CHIP, ChipLayer.MEMORY, text)
    return order


def rounding_of(part: HostWeight) -> tuple[float, int]:
    """Scale and zero point of a part's activations; 0, 0 where none stand in it. Raises ChipError
    for a scale that is no positive number, or a zero point that is no int8."""
    if part.format != "w8a8_static":
        return 0.0, 0
    scale = float(np.frombuffer(part.data, "<f4", 1)[0])
    zero = int(np.frombuffer(part.data, "<i4", 1, offset=4)[0])
    if not 0 < scale < math.inf or not -128 <= zero <= 127:
        text = f"a w8a8_static weight rounds activations with scale {scale}, zero point {zero}"
        raise invalid(CHIP, ChipLayer.MEMORY, text)
    return scale, zero


def declined(formats: tuple[str, ...], columns: int) -> str | None:
    """Why parts of these formats cannot become one weight."""
    if not set(formats) & set(W8A8):
        return None
    if len(set(formats)) > 1:
        return "parts that round their activations, and parts that do not"
    if columns > MOST_PRODUCTS:
        return f"sums of {columns:,} products of int8 may not fit 32 bits, {MOST_PRODUCTS:,} do"
    return None


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
