"""Weights: dense and row-major, parts stacked."""

from __future__ import annotations

import torch

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
from anychip.torchbase.views import view_of


class TorchWeights(Weights):
    """dtype: what every weight becomes. None: as it comes; parts that differ become float32."""

    def __init__(self, chip: str, memory: Memory, dtype: DType | None) -> None:
        self._chip, self._memory, self._dtype = chip, memory, dtype

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Raises ChipError (invalid) for a format that is not plain, or parts that do not stack."""
        return stacked(self._chip, formats, shapes, self._dtype)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy each part behind the ones before, converted on the device where it must be."""
        spec = self.plan(tuple(p.format for p in parts), tuple(p.shape for p in parts), uses)
        for part in parts:
            check_bytes(self._chip, part)
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
