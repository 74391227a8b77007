"""Weights: dense and row-major, parts stacked."""

from __future__ import annotations

import math

import torch

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
    format_bytes,
)
from anychip.torchbase.views import view_of


class TorchWeights(Weights):
    """dtype: what every weight becomes. None: as it comes; parts that differ become float32."""

    def __init__(self, chip: str, memory: Memory, dtype: DType | None) -> None:
        self._chip, self._memory, self._dtype = chip, memory, dtype

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Raises ChipError (invalid) for a format that is not plain, or parts that do not stack."""
        unknown = sorted(set(formats) - set(PLAIN_FORMATS))
        if unknown:
            raise self._refused(f"format {unknown[0]}; taken are {', '.join(PLAIN_FORMATS)}")
        if not shapes or len({shape[1:] for shape in shapes}) != 1:
            raise self._refused(f"parts of shapes {shapes} do not stack")
        same = DType(formats[0]) if len(set(formats)) == 1 else DType.FLOAT32
        dtype = self._dtype or same
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        return WeightSpec(dtype.value, shape, math.prod(shape) * dtype.itemsize, dense=True)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy each part behind the ones before, converted on the device where it must be."""
        spec = self.plan(tuple(p.format for p in parts), tuple(p.shape for p in parts), uses)
        for part in parts:
            self._check_bytes(part)
        buffer = self._memory.allocate(spec.nbytes)
        dense = Tensor(spec.shape, DType(spec.format), buffer=buffer)
        row = 0
        for part in parts:
            rows = dense.view(part.shape, offset=row * spec.shape[1])
            self._copy(rows, part)
            row += part.shape[0]
        return Weight(spec, (dense,), dense=dense)

    def _copy(self, rows: Tensor, part: HostWeight) -> None:
        if part.format == rows.dtype.value:
            self._memory.copy_in(rows, part.data)
            return
        buffer = self._memory.allocate(part.data.nbytes)
        try:
            raw = Tensor(part.shape, DType(part.format), buffer=buffer)
            self._memory.copy_in(raw, part.data)
            target: torch.Tensor = view_of(rows)
            target.copy_(view_of(raw))
        finally:
            self._memory.free(buffer)

    def release(self, weight: Weight) -> None:
        """Free the one buffer behind it."""
        self._memory.free(weight.tensors[0].buffer)

    def _check_bytes(self, part: HostWeight) -> None:
        wanted = format_bytes(part.format, part.shape)
        if part.data.nbytes != wanted:
            text = f"{part.format} {part.shape} has {part.data.nbytes:,} bytes, not {wanted:,}"
            raise self._refused(text)

    def _refused(self, text: str) -> ChipError:
        return invalid(self._chip, ChipLayer.OPERATORS, f"weight: {text}")
