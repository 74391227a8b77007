"""A sound chip with every slot filled, for the checks of registration, build, memory, execution."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from anychip.chips.fake.build import FakeBuild
from anychip.chips.fake.memory import FakeMemory, FakeTelemetry
from anychip.chips.fake.operators import FakeWeights
from anychip.chips.fake.registration import FakeChip
from anychip.conform.subject import Subject
from anychip.contract.build import Compatibility, Finding, Library, Verdict
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.memory import PoolStatistics
from anychip.contract.optional import Capture, Communicator
from anychip.contract.registration import Device, Probe, read_options
from anychip.contract.tensor import Tensor


def subject_of(cls: type[FakeChip], **options) -> Subject:
    """The class on its device 0."""
    given = {"memory": "64M"} if issubclass(cls, FakeChip) else {}
    return Subject(cls, 0, read_options(cls, {**given, **options}))


class FullMemory(FakeMemory):
    """Every optional verb but copy_peer, as the contract says."""

    def copy(self, target, source) -> None:
        if target.nbytes != source.nbytes:
            raise invalid("fake", ChipLayer.MEMORY, "copy: lengths differ")
        to, content = self._bytes(target, None, "copy"), self._bytes(source, None, "copy")
        self._put("copy", lambda: np.copyto(to, content))

    def allocate_pinned(self, nbytes: int) -> memoryview:
        if nbytes < 0:
            raise invalid("fake", ChipLayer.MEMORY, f"allocate_pinned({nbytes})")
        return memoryview(bytearray(nbytes))

    def statistics(self) -> PoolStatistics:
        blocks = self._store._blocks.values()
        asked = sum(b.buffer.nbytes for b in blocks if not b.buffer.freed)
        used = self._store.used
        return PoolStatistics(used, 0, asked, 1 - asked / used if used else 0.0)


class FullBuild(FakeBuild):
    """Something to compile, libraries of the system, a matrix."""

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir()) / f"anychip-conform-{os.getpid()}.so"

    def requires(self):
        return (Library("libc.so.6", "the system"), Library("json", "Python"), self._header())

    def _header(self) -> Library:
        return Library("full.h", "full-sdk", header=True)

    def check(self):
        return (Finding("full.h", Verdict.GOOD, "found"), Finding("card", Verdict.UNKNOWN, "new"))

    def versions(self):
        return {"driver": "5.1"}

    def matrix(self):
        return (Compatibility({"driver": "5.1"}, Verdict.GOOD, "release notes of 5.1"),)

    def compile(self) -> str:
        if not self._path.exists():
            self._path.write_bytes(b"kernels")
        return str(self._path)


class FullCapture(Capture):
    """Runs what it was given."""

    def capture(self, launches):
        kept = tuple(launches)
        return lambda: [launch() for launch in kept]


class AloneCommunicator(Communicator):
    """One rank: nothing to do but the copy of all_gather. factor: of all_reduce."""

    def __init__(self, chip: FakeChip, factor: int = 1) -> None:
        self._chip, self._factor = chip, factor

    def join(self, rank: int, world: int, address: str) -> None:
        assert (rank, world) == (0, 1) and address.startswith("tcp://127.0.0.1:")

    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        assert operation in ("sum", "max")
        array = self._chip._store.array(tensor)
        self._chip.memory._put("all_reduce", lambda: np.copyto(array, array * self._factor))

    def all_gather(self, target: Tensor, source: Tensor) -> None:
        to, content = self._chip._store.array(target), self._chip._store.array(source)
        self._chip.memory._put("all_gather", lambda: np.copyto(to, content))

    def barrier(self, timeout: float) -> None:
        pass


class FullChip(FakeChip):
    """Sound, with every slot filled that one device can fill. The parts that differ are named."""

    _memory, _build, _capture, _factor = FullMemory, FullBuild, FullCapture, 1

    def __init__(self, values) -> None:
        super().__init__(values)
        sound = self.memory
        self.memory = self._memory(self._store, sound._put, sound._wait)
        self.weights = FakeWeights(self.memory)
        self.telemetry = FakeTelemetry(self.memory)
        self.build = self._build()
        self.capture = self._capture()
        self.communicator = AloneCommunicator(self, self._factor)


def full_with(**parts) -> type[FullChip]:
    """The full chip with other parts or methods."""
    return type("Double", (FullChip,), parts)


def memory_with(base: type[FakeMemory] = FullMemory, **methods) -> type[FullChip]:
    """The full chip over a memory with other methods."""
    return full_with(_memory=type("DoubleMemory", (base,), methods))


def build_with(**methods) -> type[FullChip]:
    """The full chip with another build layer."""
    return full_with(_build=type("DoubleBuild", (FullBuild,), methods))


class TwoDevices(FullChip):
    """Two devices in software that reach each other's memory."""

    @classmethod
    def probe(cls):
        return Probe((Device(0, "left"), Device(1, "right")))
