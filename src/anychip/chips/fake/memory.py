"""The simulated memory: the host reaches it through copies alone, and every rule is enforced."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from anychip.contract.errors import ChipLayer, ErrorFact, ErrorKind, invalid, out_of_memory
from anychip.contract.memory import Memory, MemoryInfo, Traffic
from anychip.contract.optional import Reading, Telemetry
from anychip.contract.tensor import Buffer, Tensor
from anychip.hostops import array_view
from anychip.hostops.views import Array

CHIP = "fake"
ALIGNMENT = 64
GUARD = bytes([0xA5]) * ALIGNMENT

Bytes = npt.NDArray[np.uint8]
Put = Callable[[str, Callable[[], None]], None]
"""Queues a piece of work under a name; see `operators.Stream.put`."""


class Code(IntEnum):
    """What this device's driver would report."""

    OUT_OF_MEMORY = 1
    INVALID = 2
    KERNEL = 3
    LOST = 4
    TIMEOUT = 5
    GUARD = 6


FACTS = {
    Code.OUT_OF_MEMORY: ErrorFact(
        ChipLayer.MEMORY, ErrorKind.OUT_OF_MEMORY, False, "no memory left"
    ),
    Code.INVALID: ErrorFact(ChipLayer.EXECUTION, ErrorKind.INVALID, False, "not allowed"),
    Code.KERNEL: ErrorFact(ChipLayer.OPERATORS, ErrorKind.KERNEL, True, "an operator failed"),
    Code.LOST: ErrorFact(ChipLayer.EXECUTION, ErrorKind.LOST, True, "the device is gone"),
    Code.TIMEOUT: ErrorFact(ChipLayer.EXECUTION, ErrorKind.TIMEOUT, True, "the queue stands still"),
    Code.GUARD: ErrorFact(ChipLayer.MEMORY, ErrorKind.KERNEL, True, "a write past a buffer"),
}


class DeviceFault(Exception):
    """Something that the device notices while it works; reported at the next wait."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class _Block:
    whole: Bytes  # guard, data, guard
    data: Bytes
    buffer: Buffer


class Store:
    """The device's memory. A handle is a number; the bytes are found here and nowhere else."""

    def __init__(
        self, capacity: int, poison_seed: int, fail_allocation: int, step: int = 0
    ) -> None:
        self.capacity, self.step = capacity, step
        self.used = self.asked = 0
        self._fail_allocation = fail_allocation
        self._noise = np.random.default_rng(poison_seed) if poison_seed else None
        self._blocks: dict[int, _Block] = {}
        self._ids = itertools.count(1)
        self._allocations = 0
        self._closed = False

    def allocate(self, nbytes: int) -> Buffer:
        """A poisoned block between guards. Raises ChipError: out of memory, invalid."""
        if nbytes < 0 or self._closed:
            reason = "the chip is closed" if self._closed else f"a size of {nbytes} bytes"
            raise invalid(CHIP, ChipLayer.MEMORY, reason)
        self._allocations += 1
        free = self.capacity - self.used
        if block_bytes(nbytes, self.step) > free or self._allocations == self._fail_allocation:
            raise out_of_memory(CHIP, nbytes, free)
        whole = np.empty(nbytes + 2 * ALIGNMENT, np.uint8)
        whole[:ALIGNMENT] = whole[ALIGNMENT + nbytes :] = GUARD[0]
        buffer = Buffer(next(self._ids), nbytes)
        block = _Block(whole, whole[ALIGNMENT : ALIGNMENT + nbytes], buffer)
        self.poison(block.data)
        self._blocks[buffer.handle] = block
        self.used += block_bytes(nbytes, self.step)
        self.asked += nbytes
        return buffer

    def poison(self, data: Array) -> None:
        """Bytes that are NaN in every float type, or noise that looks like numbers."""
        flat = data if data.dtype == np.uint8 else data.reshape(-1).view(np.uint8)
        if self._noise is None:
            flat[...] = 0xFF
        else:
            flat[...] = self._noise.integers(0, 256, flat.shape, np.uint8)

    def give_back(self, buffer: Buffer) -> int:
        """Count the memory as free and mark the buffer; returns what `release` takes."""
        block = self._block(buffer)
        block.buffer.freed = True
        self.used -= block_bytes(buffer.nbytes, self.step)
        self.asked -= buffer.nbytes
        return int(buffer.handle)

    def release(self, handle: int) -> None:
        """Poison and forget a block, once the work before it is done."""
        block = self._blocks.pop(handle)
        intact = _intact(block)
        self.poison(block.data)
        if not intact:
            raise _damaged(block, "noticed when it was freed")

    def data(self, buffer: Buffer) -> Bytes:
        """The bytes of a living buffer. Raises ChipError (invalid)."""
        return self._block(buffer).data

    def array(self, tensor: Tensor) -> Array:
        """The tensor's elements on the device."""
        return array_view(self.data(tensor.buffer), tensor)

    def _block(self, buffer: Buffer) -> _Block:
        if buffer.freed:
            text = f"a buffer of {buffer.nbytes:,} bytes was used or freed after its free"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        block = self._blocks.get(buffer.handle) if isinstance(buffer.handle, int) else None
        if block is None or block.buffer is not buffer:
            text = f"a buffer of {buffer.nbytes:,} bytes does not belong to this chip"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        return block

    def verify(self, buffers: tuple[Buffer, ...], operator: str) -> None:
        """Check the guards around some buffers after `operator` ran. Raises DeviceFault."""
        for buffer in buffers:
            block = self._blocks.get(buffer.handle)
            if block is not None and not _intact(block):
                raise _damaged(block, f"by '{operator}'")

    def verify_all(self) -> None:
        """Check every guard. Raises DeviceFault."""
        for block in self._blocks.values():
            if not _intact(block):
                raise _damaged(block, "since the last wait")

    def close(self) -> None:
        """Forget everything; every buffer becomes invalid."""
        for block in self._blocks.values():
            block.buffer.freed = True
        self._blocks.clear()
        self.used, self.asked, self._closed = 0, 0, True


def padded(nbytes: int) -> int:
    """Bytes that an allocation takes."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def block_bytes(nbytes: int, step: int) -> int:
    """Bytes that it takes where blocks are powers of `step`; 0: as above."""
    if step == 0:
        return padded(nbytes)
    block = step
    while block < nbytes:
        block *= step
    return block


def _intact(block: _Block) -> bool:
    ends = block.whole[:ALIGNMENT], block.whole[-ALIGNMENT:]
    return all(end.tobytes() == GUARD for end in ends)


def _damaged(block: _Block, when: str) -> DeviceFault:
    size = f"{block.buffer.nbytes:,} bytes"
    return DeviceFault(Code.GUARD, f"the bytes around a buffer of {size} were written {when}")


class FakeMemory(Memory):
    """Every rule of the contract is enforced; nothing is reachable but through copies."""

    alignment = ALIGNMENT
    unified = False

    def __init__(self, store: Store, put: Put, wait: Callable[[float | None], None]) -> None:
        self._store, self._put, self._wait = store, put, wait
        self._bytes_in = self._bytes_out = 0
        self._seconds_in = self._seconds_out = 0.0

    def allocate(self, nbytes: int) -> Buffer:
        """Poisoned memory."""
        return self._store.allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Counts at once; the bytes are poisoned after the work queued so far."""
        handle = self._store.give_back(buffer)
        self._put("free", lambda: self._store.release(handle))

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """The source is read now, the target written in queue order."""
        data = self._bytes(target, source, "copy_in")
        content = np.frombuffer(source.tobytes(), np.uint8)
        self._bytes_in += content.size
        self._put("copy_in", lambda: self._take_in(data, content))

    def _take_in(self, data: Bytes, content: Bytes) -> None:
        """What the device does when the copy's turn comes: its seconds are its own, without the
        time in the queue."""
        began = time.perf_counter()
        np.copyto(data, content)
        self._seconds_in += time.perf_counter() - began

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Waits, then reads."""
        if target.readonly:
            raise invalid(CHIP, ChipLayer.MEMORY, "copy_out: the target is read-only")
        data = self._bytes(source, target, "copy_out")
        self._wait(None)
        self._bytes_out += data.size
        if data.size:
            began = time.perf_counter()
            target.cast("B")[:] = data.data
            self._seconds_out += time.perf_counter() - began

    def info(self) -> MemoryInfo:
        """The device's own accounting."""
        store = self._store
        free = store.capacity - store.used
        return MemoryInfo(store.capacity, store.used, free, free, "accounting of the fake device")

    def fill(self, target: Tensor, byte: int) -> None:
        """In queue order."""
        if not 0 <= byte <= 255:
            raise invalid(CHIP, ChipLayer.MEMORY, f"fill: byte {byte} must lie in 0 .. 255")
        data = self._bytes(target, None, "fill")
        self._put("fill", lambda: data.fill(byte))

    def traffic(self) -> Traffic:
        """Both copies; nothing else leads from the host to the device or back."""
        return Traffic(self._bytes_in, self._bytes_out, self._seconds_in, self._seconds_out)

    def _bytes(self, tensor: Tensor, host: memoryview | None, what: str) -> np.ndarray:
        """The bytes of a contiguous tensor, once both sides are known to fit."""
        data = self._store.data(tensor.buffer)
        if not tensor.is_contiguous or (host is not None and not host.c_contiguous):
            raise invalid(CHIP, ChipLayer.MEMORY, f"{what}: both sides must be contiguous")
        if host is not None and host.nbytes != tensor.nbytes:
            text = f"{what}: {host.nbytes:,} bytes on the host, {tensor.nbytes:,} on the device"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        return data[tensor.offset : tensor.offset + tensor.nbytes]


class FakeTelemetry(Telemetry):
    """Reads the same accounting as `Memory.info`."""

    def __init__(self, memory: FakeMemory) -> None:
        self._memory = memory

    def read(self) -> Reading:
        """Memory alone: a device in software has no temperature."""
        return Reading(self._memory.info())
