"""Memory of the cpu chip: aligned host memory, accounted for."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from anychip.chips.cpu.build import CHIP
from anychip.chips.cpu.memory_parts import ALIGNMENT, Bytes
from anychip.chips.cpu.memory_slabs import Slabs, fresh
from anychip.contract.errors import ChipLayer, invalid, out_of_memory
from anychip.contract.host import CoreUse, HostFacts, host_facts, resident
from anychip.contract.memory import Memory, MemoryInfo, Traffic
from anychip.contract.optional import Reading, Telemetry
from anychip.contract.tensor import Buffer, Tensor


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


LOOK_S = 0.1
"""Seconds for which a look at the host's memory counts."""


class HostStore:
    """Host memory with an account. limit: bytes that may be handed out, 0: what the host has.

    Long-lived blocks are cut from slabs (`memory_slabs.py`).
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._resident = limit, resident()
        self.used = 0
        self._look()
        self._live: dict[int, Block] = {}  # by address; a launch knows addresses alone
        self._slabs = Slabs()

    def take(self, nbytes: int, *, long_lived: bool = False) -> Buffer:
        """A new block, aligned. Raises ChipError."""
        if nbytes < 0:
            raise invalid(CHIP, ChipLayer.MEMORY, f"an allocation of {nbytes} bytes")
        free = self._free()
        if nbytes > free:
            raise out_of_memory(CHIP, nbytes, free)
        try:
            raw = self._slabs.cut(nbytes) if long_lived else fresh(max(nbytes, 1), ALIGNMENT)
        except MemoryError as error:
            raise out_of_memory(CHIP, nbytes, free) from error
        block = Block(raw.ctypes.data, raw[:nbytes], raw[:nbytes].data)
        self._live[block.address] = block
        self.used += nbytes
        return Buffer(block, nbytes)

    def give(self, buffer: Buffer) -> None:
        """Take a block back. Raises ChipError where it is not one of these."""
        block = buffer.handle
        if buffer.freed or not isinstance(block, Block) or block.address not in self._live:
            text = f"a buffer of {buffer.nbytes} bytes was freed twice or belongs to another chip"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        del self._live[block.address]
        buffer.freed, buffer.handle = True, None
        self.used -= buffer.nbytes

    def close(self) -> None:
        """Leave the pages of what was taken as they are."""
        self._slabs.close()

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


KEPT_VIEWS = 1024
"""Tensors whose bytes are found at once when they are copied again."""


FLAT = (1,)
"""Strides of bytes in a row."""


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
        # Both copies are part of each step: what they share stands in both, for a call costs more.
        there = self._views.get(target)
        if there is None or target.buffer.freed or len(there) != source.nbytes:
            there = self._view_of(target, source.nbytes)
        data = _bytes_of(source) if source.format != "B" or source.strides != FLAT else source
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
        data = _bytes_of(target) if target.format != "B" or target.strides != FLAT else target
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

    def host_view(self, tensor: Tensor) -> memoryview:
        """All memory is the host's."""
        if not tensor.is_contiguous:
            raise invalid(CHIP, ChipLayer.MEMORY, "a view of a tensor that is not contiguous")
        return _view_of(tensor, tensor.nbytes)

    def traffic(self) -> Traffic:
        """Both copies; weights are packed from where the file lies, and the numbers of a step
        written where they are read, which is none."""
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


class CpuTelemetry(Telemetry):
    """The host's memory, and how busy this process keeps the cores that it computes on."""

    def __init__(self, store: HostStore, cores: CoreUse) -> None:
        self._store, self._cores = store, cores

    def read(self) -> Reading:
        """Temperature and power are the machine's, not this process's: they are left out."""
        return Reading(self._store.info(), self._cores.share())
