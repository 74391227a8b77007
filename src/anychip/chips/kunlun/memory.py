"""The runtime (XRE) through ctypes: its errors, the chip's one queue, and device memory.

XRE has no memset, no memory info and no bounded wait, and its copies wait for no queue: what
stands in for them is said where it does.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind, invalid
from anychip.contract.execution import LaunchLog, Queue
from anychip.contract.memory import Memory, MemoryInfo, PoolStatistics, Traffic
from anychip.contract.pool import SizeClassPool, size_class
from anychip.contract.tensor import Buffer, Tensor

CHIP = "kunlun"
LOG = logging.getLogger("anychip.chip")
SPACES = ("XRE", "XDNN", "BKCL", "XPUML")
"""Libraries with numbers of their own; as a code of `map_error`, 10,000 times the place here is
added: XDNN 1 is code 10001."""
TO_HOST, TO_DEVICE, WITHIN, NOMEM = 0, 1, 2, 705
PAGE = 128 << 10
"""Bytes by which the driver rounds an allocation up."""
POOLED = 2 << 20
"""Blocks up to this size wait for reuse; larger ones are exact and go back to the device."""
SEED = 1 << 20
"""Bytes of a fill that come from the host; the device copies the rest from them."""
CALLS = (
    "xpu_get_driver_version:pp xpu_get_runtime_version:pp xpu_set_device:i xpu_device_count:p "
    "xpu_device_get_attr:pii xpu_malloc:pui xpu_free:p xpu_memcpy:ppui xpu_memcpy_peer:ipipu "
    "xpu_memcpy_async:ppuip xpu_stream_create:p xpu_stream_destroy:p xpu_wait:p"
)
"""Functions with their parameters: p a pointer, i an int or enum, u a uint64_t."""
OPTIONAL = ("xpu_memcpy_async",)
Measure = Callable[[], tuple[int, int, int]]
_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "u": ctypes.c_uint64}


@cache
def error_facts() -> Mapping[int, ErrorFact]:
    """Every code of kernels/errors.tsv, numbered as `SPACES` says."""
    lines = (Path(__file__).parent / "kernels" / "errors.tsv").read_text().splitlines()
    facts = {}
    for space, code, name, layer, kind, fatal, text in (line.split("\t") for line in lines[1:]):
        told = f"{space} {code} ({name}): {text}"
        fact = ErrorFact(ChipLayer(layer), ErrorKind(kind), fatal == "yes", told)
        facts[10_000 * SPACES.index(space) + int(code)] = fact
    return facts


def error_fact(code: int) -> ErrorFact:
    """What a code means; the sign does not matter, and below 700 it is an errno."""
    if known := error_facts().get(abs(code)):
        return known
    place, number = divmod(abs(code), 10_000)
    space = SPACES[place] if place < len(SPACES) else "no library"
    errno = f"XRE {code}, an errno: {os.strerror(number)}"
    text = errno if abs(code) < 700 else f"{space} {number}: unknown code {code}"
    full = abs(code) == 12  # ENOMEM, the one errno that a process survives
    kind = ErrorKind.OUT_OF_MEMORY if full else ErrorKind.KERNEL
    return ErrorFact(ChipLayer.EXECUTION, kind, not full, text)


def vendor_error(space: str, status: int, told: str, operators: tuple[str, ...] = ()) -> ChipError:
    """The typed error of a library's status that is not 0; `told` is what gave it."""
    code = 10_000 * SPACES.index(space) + abs(status)
    fact = replace(error_fact(code), text=f"{told}: {error_fact(code).text}")
    return ChipError(fact, chip=CHIP, code=code, operators=operators)


def _refused(text: str) -> ChipError:
    return invalid(CHIP, ChipLayer.MEMORY, text)


def _stranger(buffer: Buffer) -> ChipError:
    return _refused(f"a buffer of {buffer.nbytes:,} bytes was freed or is another chip's")


class Xre:
    """libxpurt. missing: optional functions that this version lacks. Raises ChipError."""

    def __init__(self, path: Path | str) -> None:
        self._calls: dict[str, Any] = {}
        try:
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            self.missing = [name for name in OPTIONAL if not hasattr(library, name)]
            for name, types in (call.split(":") for call in CALLS.split()):
                if name not in self.missing:
                    self._calls[name] = getattr(library, name)
                    self._calls[name].argtypes = [_TYPES[t] for t in types]
        except (OSError, AttributeError) as error:
            fact = ErrorFact(ChipLayer.BUILD, ErrorKind.VERSION, True, str(error))
            raise ChipError(fact, chip=CHIP) from error

    def status(self, name: str, *arguments: Any) -> int:
        """Call and give the vendor's status."""
        return int(self._calls[name](*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call; raises ChipError where the status is not 0."""
        if status := self.status(name, *arguments):
            raise vendor_error("XRE", status, name)

    def ask(self, name: str, kind: type[Any], *arguments: Any) -> int:
        """Call a function whose first parameter takes the answer."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return int(value.value or 0)

    def version(self, of: str) -> str:
        """major.minor of "driver" or "runtime": all that the runtime tells."""
        major, minor = ctypes.c_uint32(), ctypes.c_uint32()
        self.call(f"xpu_get_{of}_version", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"


class Stream:
    """What copies and operators are put on. handle: the vendor's XPUStream. late: the error that
    ended it. The current device belongs to the thread, which may drive several: `use` sets it.
    """

    def __init__(self, xre: Xre, device: int) -> None:
        self.xre, self.device, self._log, self._idle = xre, device, LaunchLog(), True
        self.late: ChipError | None = None
        self.use()
        self.handle = xre.ask("xpu_stream_create", ctypes.c_void_p)

    def use(self) -> None:
        """Make the device the current one of this thread."""
        self.xre.call("xpu_set_device", self.device)

    def launched(self, name: str) -> None:
        """Something was put on the queue: an operator, a collective, a copy inside the device."""
        self._idle = False
        self._log.record(name)

    def settle(self) -> None:
        """Make the device current, and wait unless nothing was launched since the last wait."""
        self.use()
        if not self._idle or self.late:
            self.wait(None)

    def wait(self, timeout: float | None) -> None:
        """Wait for all that was launched. A late error is told by every wait after it.

        XRE has no bounded wait: with a timeout, in seconds, a thread waits. Where the time passes
        it stays in the vendor's call until the process ends, which this fatal error asks for.
        """
        if self.late is not None:
            raise self.late
        found: list[int] = []
        if timeout is None:
            self._wait_into(found)
        else:
            waiter = threading.Thread(target=self._wait_into, args=(found,), daemon=True)
            waiter.start()
            waiter.join(timeout)
        if found == [0]:
            self._idle = True
            self._log.confirm()
            return
        text, queued = f"xpu_wait did not return within {timeout} s", self._log.unconfirmed
        fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.TIMEOUT, True, text)
        failed = vendor_error("XRE", found[0], "xpu_wait", queued) if found else None
        self.late = failed or ChipError(fact, chip=CHIP, operators=queued)
        raise self.late

    def _wait_into(self, found: list[int]) -> None:
        chosen = self.xre.status("xpu_set_device", self.device)
        found.append(chosen or self.xre.status("xpu_wait", self.handle))

    def sound(self) -> bool:
        """Wait; False after an error: what is held then goes back at the end of the process."""
        try:
            self.settle()
        except ChipError as error:
            LOG.warning("device %d is closed after an error: %s", self.device, error)
            return False
        return True

    def close(self) -> None:
        """End it, where it is sound."""
        if self.sound():
            self.xre.call("xpu_stream_destroy", self.handle)


class KunlunQueue(Queue):
    """The device's only queue. Operators put themselves on `stream` and say so: `launched`."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.launched = stream, stream.launched

    def synchronize(self, timeout: float | None) -> None:
        """See `Stream.wait` for what a timeout costs."""
        self.stream.wait(timeout)


class Block(NamedTuple):
    """A buffer's handle. chip: the device's index in the contract. device: its number in XRE."""

    address: int
    chip: int
    device: int


def address_of(tensor: Tensor) -> int:
    """Device address of a tensor's first element. Raises ChipError (invalid)."""
    if tensor.buffer.freed or not isinstance(tensor.buffer.handle, Block):
        raise _stranger(tensor.buffer)
    return tensor.buffer.handle.address + tensor.offset


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _held(buffers: Iterable[Buffer]) -> int:
    """Bytes of the card behind buffers: whole pages, of the size class where one is pooled."""
    sizes = (b.nbytes for b in buffers)
    return sum(_pages(size_class(n) if n <= POOLED else n) for n in sizes)


class KunlunMemory(Memory):
    """Device memory behind a pool, in the queue's order, from the thread that drives the queue.

    index: the device's number in the contract. measure: the card's bytes (total, free, used),
    whoever holds them, as XPUML has them. block_limit: bytes that one allocation cannot pass, 0
    for none.
    """

    def __init__(self, stream: Stream, index: int, measure: Measure, block_limit: int = 0) -> None:
        self._stream, self._xre, self._index = stream, stream.xre, index
        self._measure, self._block_limit = measure, block_limit
        self._pool = SizeClassPool(CHIP, self._take, self._give)
        self._lent: dict[int, Buffer] = {}
        self._taken, self._closed = 0, False
        self._moved, self._seconds = [0, 0], [0.0, 0.0]  # by direction
        self.close = self._close  # not a verb of the contract: the chip's own close calls it

    def allocate(self, nbytes: int) -> Buffer:
        """An empty buffer has a block too, since the runtime gives none of size 0."""
        if nbytes < 0 or self._closed:
            raise _refused("the chip is closed" if self._closed else f"a size of {nbytes} bytes")
        exact = nbytes > POOLED
        buffer = Buffer(self._take(nbytes), nbytes) if exact else self._pool.allocate(nbytes)
        self._lent[id(buffer)] = buffer
        return buffer

    def _take(self, nbytes: int) -> Block:
        self._stream.use()
        address = ctypes.c_void_p()
        wanted = ctypes.byref(address), nbytes, 0
        status = self._xre.status("xpu_malloc", *wanted)
        if abs(status) == NOMEM and self._pool.trim():
            status = self._xre.status("xpu_malloc", *wanted)
        if status:
            told = f"asked for {nbytes:,} bytes, {self.info().free:,} free: xpu_malloc"
            raise vendor_error("XRE", status, told)
        self._taken += _pages(nbytes)
        return Block(address.value or 0, self._index, self._stream.device)

    def _give(self, block: Any, nbytes: int) -> None:
        self._stream.settle()
        self._xre.call("xpu_free", block.address)
        self._taken -= _pages(nbytes)

    def free(self, buffer: Buffer) -> None:
        """A pooled block is reused in the queue's order; a larger one waits for the queue."""
        self._check(buffer)
        if buffer.nbytes > POOLED:
            self._give(buffer.handle, buffer.nbytes)
            buffer.freed = True
        else:
            self._pool.free(buffer)
        del self._lent[id(buffer)]

    def _check(self, buffer: Buffer) -> None:
        if buffer.freed or self._lent.get(id(buffer)) is not buffer:
            raise _stranger(buffer)

    def _address(self, tensor: Tensor, what: str, other: memoryview | Tensor | None = None) -> int:
        """Where a contiguous tensor of ours starts, once the other side is known to fit it."""
        self._check(tensor.buffer)
        gaps = isinstance(other, memoryview) and not other.c_contiguous
        if gaps or not tensor.is_contiguous:
            raise _refused(f"{what}: both sides must be contiguous")
        if other is not None and other.nbytes != tensor.nbytes:
            there = "on the host" if isinstance(other, memoryview) else "in the source"
            sizes = f"{other.nbytes:,} bytes {there}, {tensor.nbytes:,} on the device"
            raise _refused(f"{what}: {sizes}")
        return address_of(tensor)

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """Waits first where something was launched since the last wait."""
        address = self._address(target, "copy_in", source)
        self._stream.settle()
        self._cross(TO_DEVICE, address, source)

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Waits, then copies."""
        if target.readonly:
            raise _refused("copy_out: the target is read-only")
        address = self._address(source, "copy_out", target)
        self._stream.wait(None)
        self._cross(TO_HOST, address, target)

    def _cross(self, direction: int, address: int, host: memoryview) -> None:
        if not host.nbytes:
            return
        there = np.frombuffer(host, np.uint8).ctypes.data
        pair = (there, address) if direction == TO_HOST else (address, there)
        began = time.perf_counter()
        self._xre.call("xpu_memcpy", *pair, host.nbytes, direction)
        self._seconds[direction] += time.perf_counter() - began
        self._moved[direction] += host.nbytes

    def copy(self, target: Tensor, source: Tensor) -> None:
        """On the queue where the runtime has `xpu_memcpy_async`, else between two waits."""
        start = self._address(source, "copy")
        self._inside(self._address(target, "copy", source), start, source.nbytes)

    def _inside(self, target: int, source: int, nbytes: int) -> None:
        if nbytes and "xpu_memcpy_async" not in self._xre.missing:
            self._stream.use()
            handle = self._stream.handle
            self._xre.call("xpu_memcpy_async", target, source, nbytes, WITHIN, handle)
            self._stream.launched("copy")
        elif nbytes:
            self._stream.settle()
            self._xre.call("xpu_memcpy", target, source, nbytes, WITHIN)
            self._xre.call("xpu_wait", None)  # such a copy runs on the device's default queue

    def fill(self, target: Tensor, byte: int) -> None:
        """XRE has no memset: the first bytes come from the host, the device doubles them."""
        if not 0 <= byte <= 255:
            raise _refused(f"fill: byte {byte} must lie in 0 .. 255")
        address, done = self._address(target, "fill"), min(target.nbytes, SEED)
        self._stream.settle()
        self._cross(TO_DEVICE, address, memoryview(bytes([byte]) * done))
        while done < target.nbytes:
            step = min(done, target.nbytes - done)
            self._inside(address + done, address, step)
            done += step

    def copy_peer(self, target: Tensor, source: Tensor, device: int) -> None:
        """Behind this queue's work; that the runtime's copy is done on return is assumed."""
        sender = self._stream.device, self._address(source, "copy_peer")
        end, there = address_of(target), target.buffer.handle
        if there.chip != device or not target.is_contiguous or target.nbytes != source.nbytes:
            text = f"copy_peer of {source.nbytes:,} bytes to device {device}: the target has "
            raise _refused(f"{text}{target.nbytes:,}, lies on device {there.chip}, or has gaps")
        self._stream.settle()
        if source.nbytes:
            self._xre.call("xpu_memcpy_peer", there.device, end, *sender, source.nbytes)

    def info(self) -> MemoryInfo:
        """The card's, whoever holds it; what the pool keeps counts as free."""
        total, free, _ = self._measure()
        free = min(free + self._taken - _held(self._lent.values()), total)
        largest = free // PAGE * PAGE if free > POOLED else free * 4 // 5  # a class's slack
        if self._block_limit:  # one of so many parts has at least the mean of what is free
            parts = -(-total // self._block_limit)
            largest = min(largest, self._block_limit, free // parts // PAGE * PAGE)
        return MemoryInfo(total, total - free, free, largest, "XPUML")

    def statistics(self) -> PoolStatistics:
        """In whole pages of the card, beside what was asked for."""
        used = _held(self._lent.values())
        asked = sum(b.nbytes for b in self._lent.values())
        return PoolStatistics(used, self._taken - used, asked, 1 - asked / used if used else 0.0)

    def traffic(self) -> Traffic:
        """All that crossed, the host's part of a fill included; operators copy nothing."""
        return Traffic(*reversed(self._moved), *reversed(self._seconds))

    def _close(self) -> None:
        sound, self._closed = self._stream.sound(), True
        for buffer in list(self._lent.values()):
            if sound:
                self.free(buffer)
            buffer.freed = True
        self._lent.clear()
        if sound:
            self._pool.trim()
