"""Weights: dense and row-major, parts stacked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, invalid
from anychip.contract.memory import Memory
from anychip.contract.tensor import Shape, Tensor
from anychip.contract.weights import (
    PLAIN_FORMATS,
    HostWeight,
    Weight,
    Weights,
    WeightSpec,
    WeightUse,
)
from anychip.sdkbase.dtypes import NUMPY


class DenseWeights(Weights):
    """Their dtype is kept; parts of different formats become float32 on the host."""

    def __init__(self, chip: str, memory: Memory) -> None:
        self._chip, self._memory = chip, memory

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Size and format; allocates nothing. Raises ChipError (invalid)."""
        unknown = sorted(set(formats) - set(PLAIN_FORMATS))
        if unknown:
            raise self._refused(f"weight format {unknown[0]}; taken are {', '.join(PLAIN_FORMATS)}")
        if not shapes or len({shape[1:] for shape in shapes}) != 1:
            raise self._refused(f"parts of shapes {shapes} do not stack")
        dtype = DType(formats[0]) if len(set(formats)) == 1 else DType.FLOAT32
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        return WeightSpec(dtype.value, shape, prod(shape) * dtype.itemsize, dense=True)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy the parts in, one behind the other. Raises ChipError."""
        formats, shapes = tuple(p.format for p in parts), tuple(p.shape for p in parts)
        spec = self.plan(formats, shapes, uses)
        sources = [self._values(part) for part in parts]
        buffer = self._memory.allocate(spec.nbytes)
        whole, start = Tensor(spec.shape, DType(spec.format), buffer=buffer), 0
        for part, source in zip(parts, sources, strict=True):
            held = source.astype(NUMPY[whole.dtype], copy=False)
            self._memory.copy_in(whole.view(part.shape, offset=start), held.view(np.uint8).data)
            start += source.size
        return Weight(spec, (whole,), dense=whole)

    def release(self, weight: Weight) -> None:
        """Free the one buffer."""
        self._memory.free(weight.tensors[0].buffer)

    def _values(self, part: HostWeight) -> np.ndarray[Any, Any]:
        """A part's elements in its own type, in one row."""
        held = NUMPY[DType(part.format)]
        expected = prod(part.shape) * held.itemsize
        if part.data.nbytes != expected:
            text = f"a {part.format} weight {part.shape} has {part.data.nbytes:,} bytes"
            raise self._refused(f"{text}, not {expected:,}")
        return np.frombuffer(part.data, held)

    def _refused(self, text: str) -> ChipError:
        return invalid(self._chip, ChipLayer.OPERATORS, text)
