"""Weights of the cpu chip: packed into its memory in the layout that the kernels read."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.chips.cpu.build import CHIP, KernelLibrary
from anychip.chips.cpu.memory import HostStore, address_of, raw_bytes
from anychip.chips.cpu.memory_parts import (
    FORMAT_CODES,
    PANEL_FORMATS,
    PARTS,
    SEGMENT_FORMATS,
    common_format,
    declined,
    laid_out,
    order_of,
)
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.formats import (
    PLAIN_FORMATS,
    W8A8,
    block_elements,
    head_bytes,
    row_bytes,
)
from anychip.contract.tensor import Buffer, Shape, Tensor
from anychip.contract.weights import (
    HostWeight,
    Weight,
    Weights,
    WeightSpec,
    WeightUse,
    check_bytes,
)
from anychip.hostops import NUMPY_DTYPES


class CpuWeights(Weights):
    """Packs for the kernels where a weight is multiplied; an embedding alone stays row-major.

    Parts that cannot share panels lie behind a table. Every weight becomes float32 when there are
    no kernels, and so do plain parts of different formats that stay row-major.
    """

    def __init__(self, store: HostStore, kernels: KernelLibrary | None) -> None:
        self._store, self._kernels = store, kernels

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Raises ChipError (invalid) for a format or a K that cannot be packed."""
        reason = self.declines(formats, shapes, uses)
        if reason is not None:
            raise invalid(CHIP, ChipLayer.MEMORY, reason)
        for name, shape in zip(formats, shapes, strict=True):
            _check_part(name, shape, shapes[0][1], self._kernels is not None)
        shape = (sum(s[0] for s in shapes), shapes[0][1])
        if self._kernels is None:
            return WeightSpec("float32", shape, shape[0] * shape[1] * 4, dense=True)
        name = common_format(formats)
        if uses == {WeightUse.EMBEDDING} and set(formats) <= set(PLAIN_FORMATS):
            held = "float32" if name == PARTS else name
            return WeightSpec(held, shape, shape[0] * row_bytes(held, shape[1]), dense=True)
        if name in SEGMENT_FORMATS:
            nbytes = laid_out(formats, shapes, self._panels).nbytes
        else:
            nbytes = self._panels(name, shape)
        return WeightSpec(name, shape, nbytes, dense=False)

    def declines(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> str | None:
        """Parts of different formats are one weight, but for experts' and for int8 by int8."""
        if WeightUse.EXPERTS in uses and set(formats) & set(W8A8):
            return "experts do not round their activations to int8 here"
        apart = len(set(formats)) > 1 or formats[0] in SEGMENT_FORMATS
        if apart and WeightUse.EXPERTS in uses and not set(formats) <= set(PLAIN_FORMATS):
            return "all matrices of experts must lie alike, their columns in the order of the file"
        return declined(formats, shapes[0][1])

    def _panels(self, name: str, shape: Shape) -> int:
        """Bytes of the panels of a part."""
        assert self._kernels is not None
        panels = -(-shape[0] // self._kernels.panel_columns)
        return panels * self._kernels.panel_bytes(PANEL_FORMATS[name], shape[1])

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Pack each part's rows behind the ones before."""
        spec = self.plan(tuple(p.format for p in parts), tuple(p.shape for p in parts), uses)
        for part in parts:
            check_bytes(CHIP, part)
        buffer = self._store.take(spec.nbytes, long_lived=True)
        try:
            return self._filled(spec, buffer, parts)
        except BaseException:
            self._store.give(buffer)
            raise

    def _filled(self, spec: WeightSpec, buffer: Buffer, parts: tuple[HostWeight, ...]) -> Weight:
        if spec.dense:
            dense = Tensor(spec.shape, DType(spec.format), buffer=buffer)
            _fill_dense(dense, parts)
            return Weight(spec, (dense,), dense)
        packed = Tensor((spec.nbytes,), DType.UINT8, buffer=buffer)
        if spec.format in SEGMENT_FORMATS:
            self._fill_segments(packed, parts)
            return Weight(spec, (packed,))
        self._clear_last(packed, spec.format, spec.shape)
        first = 0
        for part in parts:
            self._pack(packed, part, spec.format, first)
            first += part.shape[0]
        return Weight(spec, (packed,))

    def _clear_last(self, packed: Tensor, name: str, shape: Shape) -> None:
        """What lies past the last row; all else is written by packing, whose threads touch it
        first: a fill here would have this thread alone touch a huge page of each weight."""
        assert self._kernels is not None
        if shape[0] % self._kernels.panel_columns:
            end = packed.offset + self._panels(name, shape)
            last = self._kernels.panel_bytes(PANEL_FORMATS[name], shape[1])
            raw_bytes(packed)[end - last : end].fill(0)

    def _fill_segments(self, packed: Tensor, parts: tuple[HostWeight, ...]) -> None:
        formats, shapes = tuple(p.format for p in parts), tuple(p.shape for p in parts)
        layout = laid_out(formats, shapes, self._panels)
        raw, table = raw_bytes(packed), layout.table(parts)
        raw[: table.size] = table
        for part, place in zip(parts, layout.places, strict=True):
            if place.order:
                order = order_of(part).view(np.uint8)
                raw[place.order : place.order + order.size] = order
            panels = Tensor(
                (packed.nbytes - place.panels,),
                DType.UINT8,
                offset=place.panels,
                buffer=packed.buffer,
            )
            self._clear_last(panels, place.format, part.shape)
            self._pack(panels, part, place.format, 0)

    def _pack(self, packed: Tensor, part: HostWeight, name: str, first: int) -> None:
        """Rows of a part as panels of a format, from a row on."""
        assert self._kernels is not None
        source: npt.NDArray[Any] = np.frombuffer(part.data, np.uint8)
        arguments = self._kernels.arguments(
            "pack",
            source=source.ctypes.data + head_bytes(part.format, part.shape[1]),
            target=address_of(packed),
            rows=part.shape[0],
            k=part.shape[1],
            first=first,
            format=PANEL_FORMATS[name],
        )
        self._kernels.function("pack")(ctypes.addressof(arguments))

    def release(self, weight: Weight) -> None:
        """Free the one buffer behind it."""
        self._store.give(weight.tensors[0].buffer)


def _check_part(name: str, shape: Shape, k: int, kernels: bool) -> None:
    if name not in (FORMAT_CODES if kernels else PLAIN_FORMATS) or name == PARTS:
        raise invalid(CHIP, ChipLayer.MEMORY, f"a weight of format '{name}' cannot be packed")
    if shape[1] != k:
        text = f"parts of one weight have {k} and {shape[1]} columns"
        raise invalid(CHIP, ChipLayer.MEMORY, text)
    if shape[1] % block_elements(name):
        text = f"{shape[1]} columns of {name} are no whole blocks of {block_elements(name)}"
        raise invalid(CHIP, ChipLayer.MEMORY, text)


def _part_floats(part: HostWeight) -> npt.NDArray[np.float32]:
    """A plain part as float32 rows."""
    plain = np.frombuffer(part.data, NUMPY_DTYPES[DType(part.format)])
    return plain.reshape(part.shape).astype(np.float32)


def _fill_dense(dense: Tensor, parts: tuple[HostWeight, ...]) -> None:
    raw, at = raw_bytes(dense), 0
    for part in parts:
        same = part.format == dense.dtype.value
        rows = np.frombuffer(part.data, np.uint8) if same else _part_floats(part).view(np.uint8)
        rows = rows.reshape(-1)
        raw[at : at + rows.size] = rows
        at += rows.size
