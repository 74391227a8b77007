"""Chips with one thing wrong in registration, build, memory or execution."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np

from anychip.chips.fake.memory import FakeTelemetry
from anychip.chips.fake.operators import FakeQueue
from anychip.chips.fake.registration import FakeChip
from anychip.contract.build import Compatibility, Finding, Library, Verdict
from anychip.contract.errors import ChipError, ErrorKind, out_of_memory
from anychip.contract.memory import PoolStatistics, Traffic
from anychip.contract.operators import OperatorTable
from anychip.contract.optional import Capture, Reading
from anychip.contract.registration import Option, Probe
from conform.layer_doubles import FullChip, FullMemory, build_with, full_with, memory_with

# Registration.


class WrongDefault(FullChip):
    options = (*FakeChip.options, Option("streams", int, "2", "queues that work side by side"))


class NoHelp(FullChip):
    options = (*FakeChip.options, Option("streams", int, 2, ""))


class Forgetful(FullChip):
    """Capabilities change from one question to the next."""

    def capabilities(self):
        self._asked = getattr(self, "_asked", 0) + 1
        return replace(super().capabilities(), max_tokens=self._asked)


class NoQueue(FullChip):
    def __init__(self, values) -> None:
        super().__init__(values)
        self.queue = None


class FatalShortage(FullChip):
    @classmethod
    def map_error(cls, code):
        fact = super().map_error(code)
        return replace(fact, fatal=True) if fact.kind is ErrorKind.OUT_OF_MEMORY else fact


class NumberlessCode(FullChip):
    @classmethod
    def map_error(cls, code):
        return replace(super().map_error(code), text="something failed")


class NoReason(FullChip):
    @classmethod
    def probe(cls):
        return Probe(())


class BadCard(FullChip):
    @classmethod
    def check_device(cls, device, timeout):
        return Finding("card", Verdict.BAD, "1 + 1 gave 3")


class OwnProcess(FullChip):
    """Computes at once, in the process that asks."""

    @classmethod
    def check_device(cls, device, timeout):
        return Finding("card", Verdict.GOOD, "1 + 1 gave 2")


# Memory.


def told(change):
    """info() with figures changed."""
    return {"info": lambda self: change(FullMemory.info(self))}


def refused_as(change):
    """allocate() with another error."""

    def allocate(self, nbytes):
        try:
            return FullMemory.allocate(self, nbytes)
        except ChipError as error:
            raise ChipError(change(error.fact), chip="fake") from error

    return {"allocate": allocate}


def halved(self, nbytes):
    """Nothing larger than half of the device."""
    if nbytes > self._store.capacity // 2:
        raise out_of_memory("fake", nbytes, self._store.capacity - self._store.used)
    return FullMemory.allocate(self, nbytes)


def free_by_number(self, buffer) -> None:
    """Looks at the handle alone."""
    block = self._store._blocks.get(buffer.handle) if isinstance(buffer.handle, int) else None
    FullMemory.free(self, buffer if buffer.freed or block is None else block.buffer)


def free_now(self, buffer) -> None:
    """Memory is reused while queued work still reads it."""
    data = self._store.data(buffer)
    FullMemory.free(self, buffer)
    data.fill(0)


def copy_now(self, target, source) -> None:
    """Ahead of the queue."""
    np.copyto(self._bytes(target, None, "copy"), self._bytes(source, None, "copy"))


def view_of_queued(self, tensor) -> memoryview:
    """Of memory that work in the queue is still to change."""
    return self._bytes(tensor, None, "host_view").data


def view_of_a_copy(self, tensor) -> memoryview:
    """Nothing that is written there arrives."""
    self._wait(None)
    return memoryview(bytearray(self._bytes(tensor, None, "host_view")))


def half_fill(self, target, byte) -> None:
    """Checks nothing of the byte."""
    data = self._bytes(target, None, "fill")
    self._put("fill", lambda: data.fill(byte & 255))


def statistics_of_classes(self) -> PoolStatistics:
    """Counts what it handed out as what was asked."""
    return replace(FullMemory.statistics(self), asked=self._store.used, fragmentation=0.0)


class LeavesThread(FullChip):
    def __init__(self, values) -> None:
        super().__init__(values)
        self._ended = threading.Event()
        threading.Thread(target=self._ended.wait, args=(60.0,), daemon=True).start()

    def close(self) -> None:
        super().close()


class LeavesFile(FullChip):
    def __init__(self, values) -> None:
        super().__init__(values)
        self._file = os.open("/dev/null", os.O_RDONLY)


class ClosesOnce(FullChip):
    def close(self) -> None:
        if self._store._closed:
            raise RuntimeError("closed already")
        super().close()


class KeepsMemory(FullChip):
    """The process keeps a megabyte of each device that was open."""

    _kept: list = []  # noqa: RUF012 - shared by all of them: that is the defect

    def close(self) -> None:
        self._kept.append(np.ones(1 << 20, np.uint8))
        super().close()


class KeepsDeviceMemory(FullChip):
    """The device keeps a little of each time that it was open."""

    _taken = 0

    def __init__(self, values) -> None:
        super().__init__(values)
        self._store.used = type(self)._taken

    def close(self) -> None:
        super().close()
        type(self)._taken += 64


# Execution.


class RawErrors(FullChip):
    """What a kernel raises comes out as it is."""

    def __init__(self, values) -> None:
        super().__init__(values)
        stream = self.queue._stream

        class RawQueue(FakeQueue):
            def synchronize(self, timeout) -> None:
                try:
                    super().synchronize(timeout)
                except ChipError as error:
                    raise OSError(str(error)) from error

        self.queue = RawQueue(stream)


class HangsUp(FullChip):
    """A device that cannot be closed after an error."""

    def close(self) -> None:
        with suppress(AttributeError):
            if self.queue._stream._late is not None:
                raise OSError("device busy")
        super().close()


class NoPrimitives(FullChip):
    def __init__(self, values) -> None:
        super().__init__(values)
        self.operators = OperatorTable()


def reading_with(**figures):
    """Telemetry that tells more."""

    class Told(FakeTelemetry):
        def read(self):
            return replace(super().read(), **figures)

    class Chip(FullChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.telemetry = Told(self.memory)

    return Chip


class FrozenTelemetry(FakeTelemetry):
    """Tells what was when the device was opened."""

    def __init__(self, memory) -> None:
        super().__init__(memory)
        self._first = memory.info()

    def read(self):
        return Reading(self._first)


class OldTelemetry(FullChip):
    def __init__(self, values) -> None:
        super().__init__(values)
        self.telemetry = FrozenTelemetry(self.memory)


class FirstOnly(Capture):
    """Captures the first launch."""

    def capture(self, launches):
        return launches[0]


DEFECTS = {
    "a default of another type": (WrongDefault, "P1", "streams"),
    "an option without help": (NoHelp, "P1", "help"),
    "no queue": (NoQueue, "P1", "'queue'"),
    "another contract": (full_with(contract=(1, 0)), "P1", "another major"),
    "capabilities that change": (Forgetful, "P2", "second time"),
    "no device and no reason": (NoReason, "D1", "no reason"),
    "a card that computes wrong": (BadCard, "D2", "1 + 1 gave 3"),
    "a check without a child": (OwnProcess, "D2", "its time is not kept"),
    "out of memory is fatal": (FatalShortage, "D3", "the core can go on"),
    "a code without its number": (NumberlessCode, "D3", "987654"),
    "a Python module that is not there": (
        build_with(requires=lambda self: (Library("no_such_sdk", "no-such-sdk 1.2"),)),
        "B1",
        "no-such-sdk 1.2",
    ),
    "a bad header": (
        build_with(check=lambda self: (Finding("full.h", Verdict.BAD, "gone", "install it"),)),
        "B1",
        "full.h",
    ),
    "versions known not to work": (
        build_with(
            matrix=lambda self: (Compatibility({"driver": "5.1"}, Verdict.BAD, "issue 12"),)
        ),
        "B2",
        "issue 12",
    ),
    "no versions": (build_with(versions=lambda self: {}), "B2", "versions() is empty"),
    "kernels that are nowhere": (build_with(compile=lambda self: "/no/such.so"), "B3", "/no/such"),
    "bytes that nobody counts": (
        memory_with(**told(lambda i: replace(i, total=i.total + 4096))),
        "M1",
        "is not total",
    ),
    "a largest that does not fit": (memory_with(allocate=halved), "M1", "info.largest is"),
    "more is free than there is": (
        memory_with(**told(lambda i: replace(i, largest=i.total * 2))),
        "M1",
        "info.largest",
    ),
    "a fatal shortage": (
        memory_with(**refused_as(lambda fact: replace(fact, fatal=True))),
        "M4",
        "fatal",
    ),
    "a shortage without sizes": (
        memory_with(**refused_as(lambda fact: replace(fact, text="out of memory"))),
        "M4",
        "lacks the",
    ),
    "buffers known by number alone": (memory_with(free=free_by_number), "M5", "another opened"),
    "a thread stays": (LeavesThread, "M6", "threads"),
    "a file stays open": (LeavesFile, "M6", "file descriptors"),
    "a second close fails": (ClosesOnce, "M6", "second close"),
    "memory stays": (KeepsMemory, "M6", "larger"),
    "device memory stays": (KeepsDeviceMemory, "M6", "of the device are in use"),
    "any byte is filled": (memory_with(fill=half_fill), "M7 fill", "fill with -1"),
    "copies overtake": (memory_with(copy=copy_now), "M7 copy", "copied to byte 64"),
    "pinned memory that is read-only": (
        memory_with(allocate_pinned=lambda self, nbytes: memoryview(bytes(nbytes))),
        "M7 allocate_pinned",
        "read-only",
    ),
    "a view ahead of the queue": (
        memory_with(host_view=view_of_queued),
        "M7 host_view",
        "looked at without a wait",
    ),
    "a view that is a copy": (
        memory_with(host_view=view_of_a_copy),
        "M7 host_view",
        "written in place",
    ),
    "a pool that counts classes": (
        memory_with(statistics=statistics_of_classes),
        "M7 statistics",
        "were asked",
    ),
    "traffic that counts nothing": (
        memory_with(traffic=lambda self: Traffic(0, 0)),
        "M7 traffic",
        "traffic says (0, 0)",
    ),
    "free does not wait": (memory_with(free=free_now), "X3", "time 1"),
    "errors of another type": (RawErrors, "X4", "OSError"),
    "a device that stays busy": (HangsUp, "X4", "close after the error"),
    "telemetry of an hour ago": (OldTelemetry, "T1", "telemetry tells"),
    "utilization in percent": (reading_with(utilization=57.0), "T1", "utilization 57"),
    "milliwatts": (reading_with(power=75_000.0), "T1", "power 75000"),
    "a graph of one launch": (full_with(_capture=FirstOnly), "G1", "replay 1"),
    "a sum counted twice": (full_with(_factor=2), "C1", "all_reduce"),
}
"""What is wrong -> the chip, the check that must fail, a part of its text."""
