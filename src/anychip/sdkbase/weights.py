"""Weights: dense and row-major, parts stacked."""

from __future__ import annotations

from typing import Any

import numpy as np

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.tensor import Shape, Tensor
from anychip.contract.weights import (
    HostWeight,
    Weight,
    Weights,
    WeightSpec,
    WeightUse,
    check_bytes,
    stacked,
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
        return stacked(self._chip, formats, shapes)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy the parts in, one behind the other. Raises ChipError."""
        formats, shapes = tuple(p.format for p in parts), tuple(p.shape for p in parts)
        spec = self.plan(formats, shapes, uses)
        sources = [self._values(part) for part in parts]
        buffer = self._memory.allocate(spec.nbytes)
        whole, start = Tensor(spec.shape, DType(spec.format), buffer=buffer), 0
        try:
            for part, source in zip(parts, sources, strict=True):
                held = source.astype(NUMPY[whole.dtype], copy=False)
                self._memory.copy_in(whole.view(part.shape, offset=start), held.view(np.uint8).data)
                start += source.size
        except BaseException:
            self._memory.free(buffer)
            raise
        return Weight(spec, (whole,), dense=whole)

    def release(self, weight: Weight) -> None:
        """Free the one buffer."""
        self._memory.free(weight.tensors[0].buffer)

    def _values(self, part: HostWeight) -> np.ndarray[Any, Any]:
        """A part's elements in its own type, in one row."""
        check_bytes(self._chip, part)
        return np.frombuffer(part.data, NUMPY[DType(part.format)])
