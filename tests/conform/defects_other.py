"""Weights, registration, build and whole models that go wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from anychip.chips.fake.build import FakeBuild
from anychip.chips.fake.operators import FakeWeights
from anychip.chips.fake.registration import FakeChip
from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.dtype import DType
from anychip.contract.optional import Capture
from anychip.contract.registration import Device, Probe
from anychip.contract.weights import HostWeight, WeightSpec, WeightUse
from conform.defective import chip_with, on_output

BLOCK = 34  # bytes of a q8_0 block: a float16 scale, 32 int8


def widened(part: HostWeight, divisor: float) -> HostWeight:
    """A q8_0 weight as float32."""
    if part.format != "q8_0":
        return part
    blocks = np.frombuffer(part.data, np.uint8).reshape(-1, BLOCK)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32) / divisor
    values = (blocks[:, 2:].view(np.int8) * scales).astype(np.float32)
    return HostWeight("float32", part.shape, values.reshape(-1).view(np.uint8).data)


class PackingWeights(FakeWeights):
    """Takes q8_0 too, and keeps it as float32. divisor: 1; 127 takes the scale for a maximum."""

    def __init__(self, memory, divisor: float) -> None:
        super().__init__(memory)
        self._divisor = divisor

    def plan(self, formats, shapes, uses) -> WeightSpec:
        plain = tuple("float32" if f == "q8_0" else f for f in formats)
        return super().plan(plain, shapes, uses)

    def prepare(self, parts, uses):
        return super().prepare(tuple(widened(p, self._divisor) for p in parts), uses)


class StaleWeights(FakeWeights):
    """Packs each shape once."""

    def __init__(self, memory) -> None:
        super().__init__(memory)
        self._packed: dict = {}

    def prepare(self, parts, uses):
        key = tuple((p.format, p.shape) for p in parts)
        kept = self._packed.setdefault(key, tuple(bytes(p.data) for p in parts))
        old = (replace(p, data=memoryview(k)) for p, k in zip(parts, kept, strict=True))
        return super().prepare(tuple(old), uses)


class TurnedWeights(FakeWeights):
    """Parts of experts lie in the order in which they were not given."""

    def prepare(self, parts, uses):
        return super().prepare(parts[::-1] if WeightUse.EXPERTS in uses else parts, uses)


def packing(divisor: float) -> type[FakeChip]:
    """A chip that takes q8_0."""

    class Packing(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.weights = PackingWeights(self.memory, divisor)

        def capabilities(self):
            facts = super().capabilities()
            return replace(facts, weight_formats=(*facts.weight_formats, "q8_0"))

    return Packing


class Stale(FakeChip):
    """See StaleWeights."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.weights = StaleWeights(self.memory)


class Turned(FakeChip):
    """See TurnedWeights."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.weights = TurnedWeights(self.memory)


class ProbeRaises(FakeChip):
    """No driver, no answer."""

    @classmethod
    def probe(cls) -> Probe:
        raise OSError("libfake.so: cannot open shared object file")


class SameDevices(FakeChip):
    """Two ranks on one card."""

    @classmethod
    def probe(cls) -> Probe:
        return Probe((Device(0, "card"), Device(0, "card")))


class PatientCheck(FakeChip):
    """Takes its own time to find out that a card hangs, however little it is given."""

    @classmethod
    def check_device(cls, device: int, timeout: float) -> Finding:
        time.sleep(12 if timeout < 1 else 0)
        return Finding("card", Verdict.GOOD, "fine at last")


class UnknownCode(FakeChip):
    """A code that is in no table is a bug here."""

    @classmethod
    def map_error(cls, code: int):
        return {1: super().map_error(1)}[code]


class BoastfulChip(FakeChip):
    """Offers a dtype that no operator has."""

    def capabilities(self):
        facts = super().capabilities()
        return replace(facts, activation_dtypes=(*facts.activation_dtypes, DType.INT8))


class BrokenBuild(FakeBuild):
    """A library that is not there."""

    def requires(self):
        return (Library("libfake_ops.so.3", "fake-ops"),)


class KnownBad(FakeBuild):
    """A driver that is known not to work."""

    def check(self):
        return (Finding("driver", Verdict.BAD, "4.0 loses work", "install 5.1"),)


def with_build(kind: type[FakeBuild]) -> type[FakeChip]:
    """The fake chip with another build layer."""

    class Built(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.build = kind()

    return Built


class RunsThem(Capture):
    """A capture that does what it should."""

    def capture(self, launches):
        kept = tuple(launches)
        return lambda: [launch() for launch in kept]


class RunsOnce(Capture):
    """The second replay does nothing."""

    def capture(self, launches):
        waiting = list(launches)

        def replay() -> None:
            while waiting:
                waiting.pop(0)()

        return replay


def capturing(kind: type[Capture]) -> type[FakeChip]:
    """The fake chip with its capture slot filled."""

    class Capturing(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.capture = kind()

    return Capturing


def wide_tables(y: np.ndarray) -> None:
    """Right for the sizes of the unit tests, wrong for the width of the model."""
    if y.ndim == 2 and y.shape[1] == 64:
        y[:, 1::2] = y[:, ::2]


DEFECTS = {
    "scale taken for a maximum": (packing(127.0), "O12 linear"),
    "packed weights are stale": (Stale, "O12 linear"),
    "parts of experts are turned round": (Turned, "O12 grouped_linear"),
    "so are those of both their products": (Turned, "O12 expert_mlp"),
    "the probe raises": (ProbeRaises, "D1"),
    "two devices are one": (SameDevices, "D1"),
    "check_device keeps no time": (PatientCheck, "D2"),
    "an unknown code raises": (UnknownCode, "D3"),
    "a dtype that no operator has": (BoastfulChip, "P2"),
    "a library is not there": (with_build(BrokenBuild), "B1"),
    "the driver is known to be bad": (with_build(KnownBad), "B2"),
    "a graph replays once": (capturing(RunsOnce), "G1"),
    "every second feature of the norm": (
        chip_with({"rms_norm": on_output("y", wide_tables)}),
        "E1 float32",
    ),
}
"""Defect -> the chip, and the check that must catch it."""

SOUND = {
    "fake": FakeChip,
    "takes q8_0": packing(1.0),
    "captures": capturing(RunsThem),
}
"""Chips that keep the contract in their own way."""
