"""Memory and errors. "Vendor" marks the places where a real chip calls its own library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum

import numpy as np

from anychip.contract.errors import ChipLayer, ErrorFact, ErrorKind, invalid, out_of_memory
from anychip.contract.memory import Memory, MemoryInfo, Traffic
from anychip.contract.tensor import Buffer, Tensor
from anychip.hostops import array_view
from anychip.hostops.views import Array

CHIP = "pebble"


class Code(IntEnum):
    """Vendor: the status codes of its header. BAD_SIZE is what the C source returns."""

    BAD_SIZE = 1
    NO_MEMORY = 2
    KERNEL_FAILED = 7
    DEVICE_LOST = 9


FACTS: dict[int, ErrorFact] = {
    Code.BAD_SIZE: ErrorFact(ChipLayer.OPERATORS, ErrorKind.INVALID, True, "a size out of bounds"),
    Code.NO_MEMORY: ErrorFact(ChipLayer.MEMORY, ErrorKind.OUT_OF_MEMORY, False, "memory is full"),
    Code.KERNEL_FAILED: ErrorFact(ChipLayer.OPERATORS, ErrorKind.KERNEL, True, "a kernel failed"),
    Code.DEVICE_LOST: ErrorFact(ChipLayer.EXECUTION, ErrorKind.LOST, True, "the device is gone"),
}
UNKNOWN = ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, "unknown code")


def fact_of(code: int) -> ErrorFact:
    """What a status code means. An unknown one is fatal and keeps its number."""
    return FACTS.get(code) or replace(UNKNOWN, text=f"{UNKNOWN.text} {code}")


def array_of(tensor: object) -> Array:
    """The elements of a living tensor. Vendor: its device address, handle + offset."""
    if not isinstance(tensor, Tensor) or not isinstance(tensor.buffer.handle, np.ndarray):
        raise invalid(CHIP, ChipLayer.MEMORY, "a buffer that was freed, or is not of this chip")
    return array_view(tensor.buffer.handle, tensor)


class DeviceMemory(Memory):
    """A store of bytes that the host reaches through copies alone.

    capacity: bytes. wait: `Stream.wait`, for copies that go out.
    """

    alignment = 16

    def __init__(self, capacity: int, wait: Callable[[float | None], None]) -> None:
        self._capacity, self._used, self._wait = capacity, 0, wait
        self._living: set[Buffer] = set()
        self._bytes_in = self._bytes_out = 0

    def allocate(self, nbytes: int) -> Buffer:
        """Vendor: malloc on the device."""
        free = self._capacity - self._used
        if nbytes < 0:
            raise invalid(CHIP, ChipLayer.MEMORY, f"a size of {nbytes} bytes")
        if nbytes > free:
            raise out_of_memory(CHIP, nbytes, free)
        buffer = Buffer(np.empty(nbytes, np.uint8), nbytes)
        self._living.add(buffer)
        self._used += nbytes
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Vendor: free on the device, behind the work queued so far."""
        if buffer not in self._living:
            text = f"{buffer.nbytes:,} bytes were freed twice, or are not of this device"
            raise invalid(CHIP, ChipLayer.MEMORY, text)
        self._living.remove(buffer)
        self._used -= buffer.nbytes
        buffer.handle, buffer.freed = None, True

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """Vendor: copy to the device, in queue order."""
        _bytes(target, source, "copy_in")[:] = np.frombuffer(source.tobytes(), np.uint8)
        self._bytes_in += target.nbytes

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Vendor: copy from the device; waits, so that late errors come out here."""
        device = _bytes(source, target, "copy_out")
        if target.readonly:
            raise invalid(CHIP, ChipLayer.MEMORY, "copy_out: the host's side is read-only")
        self._wait(None)
        if device.size:
            target.cast("B")[:] = device.data
        self._bytes_out += source.nbytes

    def info(self) -> MemoryInfo:
        """Vendor: its memory query. Never the host's memory in place of the device's."""
        free = self._capacity - self._used
        return MemoryInfo(self._capacity, self._used, free, free, f"{CHIP}'s own count")

    def traffic(self) -> Traffic:
        """Every byte that crossed: an operator that computes on the host shows itself here."""
        return Traffic(self._bytes_in, self._bytes_out)


def _bytes(tensor: Tensor, host: memoryview, what: str) -> Array:
    """The tensor's bytes, once both sides are known to be contiguous and equally long."""
    if not (tensor.is_contiguous and host.c_contiguous) or tensor.nbytes != host.nbytes:
        text = f"{what}: {host.nbytes:,} bytes on the host, {tensor.nbytes:,} on the device"
        raise invalid(CHIP, ChipLayer.MEMORY, f"{text}; both must be contiguous and as long")
    return array_of(tensor).reshape(-1).view(np.uint8)
