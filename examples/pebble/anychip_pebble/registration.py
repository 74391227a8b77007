"""Registration: who the chip is, what it can do, how it is opened and checked."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, ErrorFact, ErrorKind
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import Capabilities, Chip, Device, Option, Probe, register_chip
from anychip.contract.tensor import Tensor
from anychip_pebble.build import PebbleBuild
from anychip_pebble.memory import CHIP, FACTS, Code, PebbleMemory
from anychip_pebble.operators import PebbleQueue, PebbleWeights, Stream, make_table


@register_chip(CHIP, contract=(0, 1))
class PebbleChip(Chip):
    """A device that exists in this process alone."""

    vendor = "example"
    options = (
        Option("memory_mib", int, 2048, "device memory, MiB"),
        Option("native", bool, True, "use the operators written by hand, not primitives alone"),
        Option("without", str, "", "operators to leave out, separated by commas"),
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        stream = Stream()
        without = [op for op in values["without"].split(",") if op]
        self.operators = make_table(stream, native=values["native"], without=without)
        self.memory = PebbleMemory(values["memory_mib"] << 20, stream.wait)
        self.queue = PebbleQueue(stream)
        self.weights = PebbleWeights(self.memory)
        self.build = PebbleBuild()

    @classmethod
    def probe(cls) -> Probe:
        """Vendor: count the devices without initializing one; say why there is none."""
        return Probe((Device(0, "a pebble"),), versions=PebbleBuild().versions())

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> PebbleChip:
        """Vendor: set the device, create the stream."""
        return cls(options)

    @classmethod
    def check_device(cls, device: int, timeout: float) -> Finding:
        """Ones in, one operator, back out; a device that hangs does so in the child."""
        name = f"{CHIP} device {device}"
        try:
            seen = run_in_child(f"{__name__}:double_ones", device, timeout)
        except ChildFailed as error:
            return Finding(name, Verdict.BAD, str(error), "reset the device, then try again")
        verdict = Verdict.GOOD if seen == [2.0] * 4 else Verdict.BAD
        return Finding(name, verdict, f"1 + 1 gave {seen}")

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """An unknown code is fatal and keeps its number."""
        if code in FACTS:
            return FACTS[Code(code)]
        return ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, f"unknown code {code}")

    def capabilities(self) -> Capabilities:
        """Facts that the core decides by. Weights in other formats are converted at load."""
        floats = (DType.FLOAT32,)
        return Capabilities(
            activation_dtypes=floats,
            cache_dtypes=floats,
            weight_formats=("float32",),
            page_sizes=(16, 1),
            facts={"kernels": "numpy, lent by hostops"},
        )

    def close(self) -> None:
        """Vendor: destroy the stream. A second close does nothing."""


def double_ones(device: int) -> list[float]:
    """What the child of `check_device` does."""
    chip = PebbleChip.open(device, {o.name: o.default for o in PebbleChip.options})
    ones, twos = (Tensor((4,), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in "xy")
    chip.memory.copy_in(ones, memoryview(array("f", [1.0] * 4)))
    spec = CallSpec("add", {"a": ones.spec, "b": ones.spec}, {"y": twos.spec}, {})
    chip.operators.of("add")[0].prepare(Call(spec, {"a": ones, "b": ones}, {"y": twos}))()
    result = array("f", [0.0] * 4)
    chip.memory.copy_out(twos, memoryview(result))
    chip.close()
    return list(result)
