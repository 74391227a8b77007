"""The contract's memory over a driver: who copies what when, and both lengths in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from anychip.contract.errors import ChipError, ChipLayer, invalid
from anychip.contract.memory import Memory, MemoryInfo, PoolStatistics, Traffic
from anychip.contract.tensor import Buffer, Tensor
from anychip.sdkbase.blocks import Block, Blocks, stranger
from anychip.sdkbase.driver import PeerDriver
from anychip.sdkbase.stream import Stream

SEED = 1 << 20
"""Bytes of a fill that come from the host; the device copies the rest from them."""


class PooledMemory(Memory):
    """A device's memory, from the thread that drives its queue. A copy of the runtime waits for no
    queue by itself: what has to wait does so here.
    """

    def __init__(self, stream: Stream, blocks: Blocks) -> None:
        self._stream, self._blocks, self._driver = stream, blocks, stream.driver
        self._bytes_in = self._bytes_out = 0
        self._seconds_in = self._seconds_out = 0.0

    def allocate(self, nbytes: int) -> Buffer:
        """From the pool, or exactly."""
        return self._blocks.allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Behind the queued work."""
        self._blocks.free(buffer)

    def _refused(self, text: str) -> ChipError:
        return invalid(self._stream.chip, ChipLayer.MEMORY, text)

    def _address(self, tensor: Tensor, what: str, other: memoryview | Tensor | None = None) -> int:
        """Where a contiguous tensor of ours starts, once the other side is known to fit it."""
        address = self._blocks.address(tensor)
        gaps = isinstance(other, memoryview) and not other.c_contiguous
        if gaps or not tensor.is_contiguous:
            raise self._refused(f"{what}: both sides must be contiguous")
        if other is not None and other.nbytes != tensor.nbytes:
            there = "on the host" if isinstance(other, memoryview) else "in the source"
            sizes = f"{other.nbytes:,} bytes {there}, {tensor.nbytes:,} on the device"
            raise self._refused(f"{what}: {sizes}")
        return address

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """Waits first where something was launched since the last wait."""
        address = self._address(target, "copy_in", source)
        self._stream.settle()
        self._send(address, source)

    def _send(self, address: int, host: memoryview) -> None:
        if host.nbytes:
            there = _pointer(host)
            self._seconds_in += _timed(lambda: self._driver.copy_in(address, there, host.nbytes))
            self._bytes_in += host.nbytes

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Waits, then copies."""
        if target.readonly:
            raise self._refused("copy_out: the target is read-only")
        address = self._address(source, "copy_out", target)
        self._stream.wait(None)
        if target.nbytes:
            self._stream.use()
            there = _pointer(target)
            fetch = lambda: self._driver.copy_out(there, address, target.nbytes)  # noqa: E731
            self._seconds_out += _timed(fetch)
            self._bytes_out += target.nbytes

    def copy(self, target: Tensor, source: Tensor) -> None:
        """On the queue where the driver puts it there, else after a wait."""
        start = self._address(source, "copy")
        self._inside(self._address(target, "copy", source), start, source.nbytes)

    def _inside(self, target: int, source: int, nbytes: int) -> None:
        if not nbytes:
            return
        if self._driver.queues_copies:
            self._stream.put("copy", lambda: self._driver.copy_within(target, source, nbytes))
        else:
            self._stream.settle()
            self._driver.copy_within(target, source, nbytes)

    def fill(self, target: Tensor, byte: int) -> None:
        """Needs no call of the vendor's: the first bytes come from the host, the device doubles
        them."""
        if not 0 <= byte <= 255:
            raise self._refused(f"fill: byte {byte} must lie in 0 .. 255")
        address, done = self._address(target, "fill"), min(target.nbytes, SEED)
        self._stream.settle()
        self._send(address, memoryview(bytes([byte]) * done))
        while done < target.nbytes:
            step = min(done, target.nbytes - done)
            self._inside(address + done, address, step)
            done += step

    def info(self) -> MemoryInfo:
        """The card's, whoever holds it; what the pool keeps counts as free."""
        return self._blocks.info()

    def statistics(self) -> PoolStatistics:
        """In whole pages of the card, beside what was asked for."""
        return self._blocks.statistics()

    def traffic(self) -> Traffic:
        """All that crossed, the host's part of a fill included; operators copy nothing."""
        return Traffic(self._bytes_in, self._bytes_out, self._seconds_in, self._seconds_out)


class PeerMemory(PooledMemory):
    """With copies to another device of this process."""

    def __init__(self, stream: Stream, blocks: Blocks, driver: PeerDriver) -> None:
        super().__init__(stream, blocks)
        self._peers = driver

    def copy_peer(self, target: Tensor, source: Tensor, device: int) -> None:
        """Behind this queue's work, and done on return."""
        start, there = self._address(source, "copy_peer"), target.buffer.handle
        if target.buffer.freed or not isinstance(there, Block):
            raise stranger(self._stream.chip, target.buffer)
        if there.device != device or not target.is_contiguous or target.nbytes != source.nbytes:
            text = f"copy_peer of {source.nbytes:,} bytes to device {device}: the target has "
            text += f"{target.nbytes:,}, lies on device {there.device}, or has gaps"
            raise self._refused(text)
        self._stream.settle()
        if source.nbytes:
            end = there.address + target.offset
            self._peers.copy_peer(there.number, end, start, source.nbytes)


def _pointer(host: memoryview) -> int:
    return int(np.frombuffer(host, np.uint8).ctypes.data)


def _timed(copy: Callable[[], None]) -> float:
    """Seconds of a copy."""
    began = time.perf_counter()
    copy()
    return time.perf_counter() - began
