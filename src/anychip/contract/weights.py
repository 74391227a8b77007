"""Weights: the chip packs each one once at load into a layout of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.formats import PLAIN_FORMATS, format_bytes
from anychip.contract.layer import Layer, optional, required
from anychip.contract.tensor import Shape, Tensor


class WeightUse(str, Enum):
    """What an operator does with a weight; a tied weight has more than one use."""

    LINEAR = "linear"  # y = x @ w.T, N x K
    EMBEDDING = "embedding"  # rows are looked up
    LM_HEAD = "lm_head"  # y = x @ w.T in float32
    EXPERTS = "experts"  # E matrices, stacked along N; each row is multiplied by one of them
    """All parts of one expert lie together, then those of the next one. A chip that does not know
    this use treats the weight as LINEAR."""


@dataclass(frozen=True)
class HostWeight:
    """A weight, or some of its rows, as the checkpoint holds it.

    format: a name of `formats.py`. shape: (N, K). data: raw bytes, laid out as told there.
    """

    format: str
    shape: Shape
    data: memoryview


@dataclass(frozen=True)
class WeightSpec:
    """What is known of a packed weight before it is loaded. nbytes: device bytes when packed.

    dense: whether it lies as a plain row-major tensor that primitives can read.
    """

    format: str
    shape: Shape
    nbytes: int
    dense: bool


@dataclass(frozen=True, eq=False)
class Weight:
    """A packed weight: `tensors` is the chip's business; `dense` is set where spec.dense is."""

    spec: WeightSpec
    tensors: tuple[Tensor, ...]
    dense: Tensor | None = None


def stacked(
    chip: str,
    formats: tuple[str, ...],
    shapes: tuple[Shape, ...],
    dtype: DType | None = None,
) -> WeightSpec:
    """For a chip that keeps weights dense and row-major: what parts of these become, stacked.

    dtype: what every weight becomes; None: as it comes, parts that differ become float32.
    Raises ChipError (invalid) for a format that is not plain, or parts that do not stack.
    """
    unknown = sorted(set(formats) - set(PLAIN_FORMATS))
    if unknown:
        text = f"weight format {unknown[0]}; taken are {', '.join(PLAIN_FORMATS)}"
        raise invalid(chip, ChipLayer.OPERATORS, text)
    if not shapes or len({shape[1:] for shape in shapes}) != 1:
        raise invalid(chip, ChipLayer.OPERATORS, f"parts of shapes {shapes} do not stack")
    held = dtype or (DType(formats[0]) if len(set(formats)) == 1 else DType.FLOAT32)
    shape = (sum(s[0] for s in shapes), *shapes[0][1:])
    return WeightSpec(held.value, shape, math.prod(shape) * held.itemsize, dense=True)


def check_bytes(chip: str, part: HostWeight) -> None:
    """Raise ChipError (invalid) where a part has more or fewer bytes than its shape says."""
    wanted = format_bytes(part.format, part.shape)
    if part.data.nbytes != wanted:
        text = f"a {part.format} weight {part.shape} has {part.data.nbytes:,} bytes, not {wanted:,}"
        raise invalid(chip, ChipLayer.OPERATORS, text)


class Weights(Layer, contract=True):
    """Packs weights. Parts of one weight are stacked along N (query, key and value, say).

    The core only passes formats listed in `Capabilities.weight_formats`; what a checkpoint has
    beyond them the core converts first, and says so in the start-up log.
    """

    @required
    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """What `prepare` would make of parts with these formats and shapes; allocates nothing."""
        raise NotImplementedError

    @optional
    def declines(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> str | None:
        """Why parts in these formats, each of them listed, cannot become one weight; the core then
        converts them first. Left out: parts of different formats cannot."""
        different = sorted(set(formats))
        return f"parts in {', '.join(different)}" if len(different) > 1 else None

    @required
    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Pack and copy to the device. Raises ChipError (out of memory)."""
        raise NotImplementedError

    @required
    def release(self, weight: Weight) -> None:
        """Free what `prepare` allocated."""
        raise NotImplementedError
