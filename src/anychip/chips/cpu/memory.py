"""Memory of the cpu chip: aligned host memory, accounted for, and weights packed into it."""

from __future__ import annotations

import ctypes
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychip.chips.cpu.build import CHIP, KernelLibrary
from anychip.chips.cpu.memory_parts import (
    ALIGNMENT,
    FORMAT_CODES,
    PANEL_FORMATS,
    PARTS,
    SEGMENT_FORMATS,
    Bytes,
    common_format,
    declined,
    laid_out,
    order_of,
)
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid, out_of_memory
from anychip.contract.formats import (
    PLAIN_FORMATS,
    W8A8,
    block_elements,
    format_bytes,
    head_bytes,
    row_bytes,
)
from anychip.contract.host import HostFacts, host_facts, resident
from anychip.contract.memory import Memory, MemoryInfo, Traffic
from anychip.contract.tensor import Buffer, Shape, Tensor
from anychip.contract.weights import HostWeight, Weight, Weights, WeightSpec, WeightUse
from anychip.hostops import NUMPY_DTYPES


class Block(NamedTuple):
    """A buffer's handle: where it starts, the array that keeps it alive, and a view of that, whose
    copies cost less than numpy's where they are small."""

    address: int
    raw: Bytes
    view: memoryview


def address_of(tensor: Tensor) -> int:
    """Address of a tensor's first element."""
    block: Block = tensor.buffer.handle
    return block.address + tensor.offset


SLAB = 32 << 20
LOOK_S = 0.1
"""Seconds for which a look at the host's memory counts."""


class HostStore:
    """Host memory with an account. limit: bytes that may be handed out, 0: what the host has.

    Small long-lived blocks are cut from slabs: a large array gets huge pages from the system, and
    reading weights through small ones costs half of the memory's speed. A slab goes when the last
    block cut from it does.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._resident = limit, resident()
        self.used = 0
        self._look()
        self._live: dict[int, Block] = {}  # by address; a launch knows addresses alone
        self._slab: Bytes = np.empty(0, np.uint8)

    def take(self, nbytes: int, *, long_lived: bool = False) -> Buffer:
        """A new block, aligned. Raises ChipError."""
        if nbytes < 0:
            raise invalid(CHIP, ChipLayer.MEMORY, f"an allocation of {nbytes} bytes")
        free = self._free()
        if nbytes > free:
            raise out_of_memory(CHIP, nbytes, free)
        try:
            cut = long_lived and nbytes < SLAB // 4
            raw = self._cut(nbytes) if cut else _aligned(max(nbytes, 1))
        except MemoryError as error:
            raise out_of_memory(CHIP, nbytes, free) from error
        block = Block(raw.ctypes.data, raw[:nbytes], raw[:nbytes].data)
        self._live[block.address] = block
        self.used += nbytes
        return Buffer(block, nbytes)

    def _cut(self, nbytes: int) -> Bytes:
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        if self._slab.size < size:
            self._slab = _aligned(SLAB)
        raw, self._slab = self._slab[:size], self._slab[size:]
        return raw

    def give(self, buffer: Buffer) -> None:
        """Take a block back. Raises ChipError where it is not one of these."""
        block = buffer.handle
        if buffer.freed or not isinstance(block, Block) or block.address not in self._live:
            text = f"a buffer of {buffer.nbytes} bytes was freed twice or belongs to another chip"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        del self._live[block.address]
        buffer.freed, buffer.handle = True, None
        self.used -= buffer.nbytes

    def info(self) -> MemoryInfo:
        """free: below the limit and in the host, minus pages handed out but not yet touched."""
        host, touched = self._host_now()  # kept nowhere: telemetry asks from a thread of its own
        free = self._left(host, touched)
        total = min(self._limit or host.total, host.total)
        source = "chip option memory" if total == self._limit else host.source
        return MemoryInfo(total, total - free, free, free, source)

    def _look(self) -> None:
        self._host, self._touched = self._host_now()
        self._looked = time.monotonic()

    def _host_now(self) -> tuple[HostFacts, int]:
        """The host's memory, and how much of what was handed out was touched."""
        return host_facts(), max(resident() - self._resident, 0)

    def _free(self) -> int:
        """Bytes that may be handed out: by a look at the host that is LOOK_S old at most, since
        one opens a dozen files, and all that was handed out after it."""
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        return self._left(self._host, self._touched)

    def _left(self, host: HostFacts, touched: int) -> int:
        total = min(self._limit or host.total, host.total)
        untouched = max(self.used - touched, 0)
        return max(min(total - self.used, host.available - untouched), 0)


def _aligned(nbytes: int) -> Bytes:
    """Fresh memory; the system gives pages when they are first touched."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


KEPT_VIEWS = 1024  # tensors whose bytes are found at once when they are copied again


class CpuMemory(Memory):
    """Plain host memory: copies are done on return, nothing is ever queued."""

    alignment = ALIGNMENT
    unified = True

    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._views: dict[Tensor, memoryview] = {}  # of what is copied again and again
        self._bytes_in = self._bytes_out = 0
        self._seconds_in = self._seconds_out = 0.0

    def allocate(self, nbytes: int) -> Buffer:
        """Aligned to 64 bytes."""
        return self._store.take(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Give it back to the system."""
        self._views.clear()  # they would keep it
        self._store.give(buffer)

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """A plain copy."""
        there = self._views.get(target)
        if there is None or target.buffer.freed or len(there) != source.nbytes:
            there = self._view_of(target, source.nbytes)
        data = _bytes_of(source) if source.format != "B" or source.strides != (1,) else source
        began = time.perf_counter()
        there[:] = data
        self._seconds_in += time.perf_counter() - began
        self._bytes_in += len(there)

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """A plain copy: every launch before it has run."""
        if target.readonly:
            raise invalid(CHIP, ChipLayer.MEMORY, "copy_out into read-only memory")
        there = self._views.get(source)
        if there is None or source.buffer.freed or len(there) != target.nbytes:
            there = self._view_of(source, target.nbytes)
        data = _bytes_of(target) if target.format != "B" or target.strides != (1,) else target
        began = time.perf_counter()
        data[:] = there
        self._seconds_out += time.perf_counter() - began
        self._bytes_out += len(there)

    def _view_of(self, tensor: Tensor, nbytes: int) -> memoryview:
        """The bytes of a tensor, which are so many. Raises ChipError."""
        if len(self._views) >= KEPT_VIEWS:
            self._views.clear()
        view = self._views[tensor] = _view_of(tensor, nbytes)
        return view

    def info(self) -> MemoryInfo:
        """Measured now."""
        return self._store.info()

    def fill(self, target: Tensor, byte: int) -> None:
        """Set every byte."""
        if not 0 <= byte <= 255:
            raise invalid(CHIP, ChipLayer.MEMORY, f"fill: byte {byte} must lie in 0 .. 255")
        np.frombuffer(_view_of(target, target.nbytes), np.uint8).fill(byte)

    def traffic(self) -> Traffic:
        """Both copies; weights are packed from where the file lies, which is none."""
        return Traffic(self._bytes_in, self._bytes_out, self._seconds_in, self._seconds_out)


def raw_bytes(tensor: Tensor) -> Bytes:
    """All bytes of a tensor's buffer. Raises ChipError where it was freed."""
    return _block_of(tensor).raw


def _block_of(tensor: Tensor) -> Block:
    block = tensor.buffer.handle
    if tensor.buffer.freed or not isinstance(block, Block):
        text = "a tensor's buffer was freed or belongs to another chip"
        raise invalid(CHIP, ChipLayer.MEMORY, text)
    return block


def _bytes_of(host: memoryview) -> memoryview:
    """Host memory as bytes. Raises ChipError where it has gaps."""
    if not host.c_contiguous:
        raise invalid(CHIP, ChipLayer.MEMORY, "a copy with host memory that has gaps")
    return np.frombuffer(host, np.uint8).data


def _view_of(tensor: Tensor, nbytes: int) -> memoryview:
    if not tensor.is_contiguous or tensor.nbytes != nbytes:
        what = f"{tensor.nbytes} bytes" if tensor.is_contiguous else "not contiguous"
        text = f"copy of {nbytes} bytes and a tensor that is {what}"
        raise invalid(CHIP, ChipLayer.MEMORY, text)
    return _block_of(tensor).view[tensor.offset : tensor.offset + nbytes]


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
            _check_bytes(part)
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


def _check_bytes(part: HostWeight) -> None:
    wanted = format_bytes(part.format, part.shape)
    if part.data.nbytes != wanted:
        text = f"a {part.format} weight {part.shape} has {part.data.nbytes} bytes, not {wanted}"
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
