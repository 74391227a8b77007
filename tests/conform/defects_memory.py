"""Memories and queues that break their promises."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from anychip.chips.fake.memory import FakeMemory, FakeTelemetry, padded
from anychip.chips.fake.operators import FakeQueue, FakeWeights
from anychip.chips.fake.registration import FakeChip
from anychip.contract.errors import ChipError
from anychip.contract.memory import MemoryInfo
from anychip.contract.optional import Reading
from anychip.contract.tensor import Buffer


def with_memory(kind: type[FakeMemory]) -> type[FakeChip]:
    """The fake chip over another memory."""

    class Chip(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            sound = self.memory
            self.memory = kind(self._store, sound._put, sound._wait)
            self.weights = FakeWeights(self.memory)
            self.telemetry = FakeTelemetry(self.memory)

    return Chip


class NothingUsed(FakeMemory):
    """Says that all is free, always."""

    def info(self) -> MemoryInfo:
        total = self._store.capacity
        return MemoryInfo(total, 0, total, total, "a guess")


class NeverFreed(FakeMemory):
    """Every tenth free is forgotten."""

    def free(self, buffer: Buffer) -> None:
        before = self._store.used
        super().free(buffer)
        if before % 640 == 0:
            self._store.used = before


class ShortCopies(FakeMemory):
    """Copies out whole words: an odd rest is left behind."""

    def copy_out(self, source, target) -> None:
        whole = np.zeros(target.nbytes, np.uint8)
        super().copy_out(source, whole.data)
        even = target.nbytes // 4 * 4
        target.cast("B")[:even] = whole[:even].data


class AnyLength(FakeMemory):
    """Copies as many bytes as both sides have, whatever was asked."""

    def copy_in(self, target, source) -> None:
        count = min(target.nbytes, source.nbytes)
        data = self._store.data(target.buffer)[target.offset : target.offset + count]
        content = np.frombuffer(source.tobytes()[:count], np.uint8)
        self._put("copy_in", lambda: np.copyto(data, content))


class Overlapping(FakeMemory):
    """Two large blocks in a row share their bytes."""

    def allocate(self, nbytes: int) -> Buffer:
        buffer = super().allocate(nbytes)
        blocks = list(self._store._blocks.values())
        if nbytes > 65536 and len(blocks) > 1 and blocks[-2].data.size >= nbytes:
            blocks[-1].data = blocks[-2].data[:nbytes]
        return buffer


class Untyped(FakeMemory):
    """A full device is the language's own error."""

    def allocate(self, nbytes: int) -> Buffer:
        if padded(max(nbytes, 0)) > self._store.capacity - self._store.used:
            raise MemoryError("cannot allocate")
        return super().allocate(nbytes)


class FreedTwice(FakeMemory):
    """Frees what it is given, however often."""

    def free(self, buffer: Buffer) -> None:
        if not buffer.freed:
            super().free(buffer)


class LateReader(FakeMemory):
    """Reads the source of a copy when the queue gets there."""

    def copy_in(self, target, source) -> None:
        data = self._bytes(target, source, "copy_in")
        content = np.frombuffer(source, np.uint8)
        self._put("copy_in", lambda: np.copyto(data, content))


class Overtaking(FakeMemory):
    """Copies in go ahead of the queue."""

    def copy_in(self, target, source) -> None:
        data = self._bytes(target, source, "copy_in")
        np.copyto(data, np.frombuffer(source.tobytes(), np.uint8))


class FreesAtOnce(FakeMemory):
    """Memory is reused while queued work still reads it."""

    def free(self, buffer: Buffer) -> None:
        data = self._store.data(buffer)
        super().free(buffer)
        data.fill(0)


class FillsWords(FakeMemory):
    """Fill takes its byte for a word."""

    def fill(self, target, byte: int) -> None:
        data = self._bytes(target, None, "fill")
        self._put("fill", lambda: data[::4].fill(byte))


class FromTheHost(FakeTelemetry):
    """Tells the host's memory for the device's."""

    def read(self) -> Reading:
        host = MemoryInfo(1 << 40, 1 << 38, 3 << 38, 3 << 38, "host")
        return Reading(host)


class HostTelemetry(FakeChip):
    """See FromTheHost."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.telemetry = FromTheHost(self.memory)


class DeafQueue(FakeQueue):
    """Waits, and loses what went wrong."""

    def synchronize(self, timeout: float | None) -> None:
        with suppress(ChipError):
            super().synchronize(timeout)


class DeafMemory(FakeMemory):
    """The same of copies out."""

    def copy_out(self, source, target) -> None:
        with suppress(ChipError):
            super().copy_out(source, target)


class LateErrorLost(with_memory(DeafMemory)):
    """A failed kernel is never told."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.queue = DeafQueue(self.queue._stream)


class NamelessQueue(FakeQueue):
    """Tells that something failed, not what."""

    def synchronize(self, timeout: float | None) -> None:
        try:
            super().synchronize(timeout)
        except ChipError as error:
            fact = replace(error.fact, text="unspecified launch failure")
            raise ChipError(fact, chip="fake", code=error.code) from error


class NamelessMemory(FakeMemory):
    """The same of copies out."""

    def copy_out(self, source, target) -> None:
        try:
            super().copy_out(source, target)
        except ChipError as error:
            fact = replace(error.fact, text="unspecified launch failure")
            raise ChipError(fact, chip="fake", code=error.code) from error


class LateErrorNameless(with_memory(NamelessMemory)):
    """An error without the operators that are in doubt."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.queue = NamelessQueue(self.queue._stream)


def frozen_at_prepare(impl_class=FakeChip) -> type[FakeChip]:
    """Every launch computes with what was in memory when it was prepared."""

    class Frozen(impl_class):
        def __init__(self, values) -> None:
            super().__init__(values)
            table = self.operators
            self.operators = replace(
                table, implementations=tuple(map(self._frozen, table.implementations))
            )

        def _frozen(self, impl):
            def prepare(call):
                sound = impl.prepare(call)
                self.memory._wait(None)
                tensors = [v for v in call.inputs.values() if hasattr(v, "strides")]
                kept = [np.array(self._store.array(t)) for t in tensors]

                def put_back() -> None:
                    for tensor, array in zip(tensors, kept, strict=True):
                        self._store.array(tensor)[...] = array

                def launch() -> None:
                    self.memory._put(impl.op, put_back)
                    sound()

                return launch

            return replace(impl, prepare=prepare)

    return Frozen


class Leaking(FakeChip):
    """Closing gives back nothing."""

    _kept: list = []  # noqa: RUF012 - shared by all of them: that is the defect

    def close(self) -> None:
        self._kept.append(np.ones(1 << 17, np.uint8))
        super().close()


DEFECTS = {
    "info says that nothing is used": (with_memory(NothingUsed), "M1"),
    "frees are forgotten": (with_memory(NeverFreed), "M3"),
    "copies come out short": (with_memory(ShortCopies), "M2"),
    "lengths are not checked": (with_memory(AnyLength), "M2"),
    "blocks overlap": (with_memory(Overlapping), "M3"),
    "out of memory has no type": (with_memory(Untyped), "M4"),
    "a second free is taken": (with_memory(FreedTwice), "M5"),
    "close leaks": (Leaking, "M6"),
    "fill fills every fourth byte": (with_memory(FillsWords), "M7 fill"),
    "copies overtake the queue": (with_memory(Overtaking), "X1"),
    "a source is read too late": (with_memory(LateReader), "X2"),
    "free does not wait": (with_memory(FreesAtOnce), "X3"),
    "late errors are lost": (LateErrorLost, "X4"),
    "late errors name nothing": (LateErrorNameless, "X4"),
    "launches are frozen when prepared": (frozen_at_prepare(), "X5"),
    "telemetry tells the host's memory": (HostTelemetry, "T1"),
}
"""Defect -> the chip, and the check that must catch it."""
