"""Registration: who the chip is, what it can do, how it is opened and checked."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.compile import NoCompiler
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, ErrorFact, invalid
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import Capabilities, Chip, Device, Option, Probe, register_chip
from anychip.contract.tensor import Tensor
from anychip_pebble.build import LOG, DeviceBuild, Kernel, load_kernels, versions
from anychip_pebble.memory import CHIP, DeviceMemory, fact_of
from anychip_pebble.operators import DeviceQueue, DeviceWeights, Stream, make_table


@register_chip(CHIP, contract=(0, 5))
class PebbleChip(Chip):
    """Vendor: one opened device of yours. This one exists in this process alone."""

    vendor = "example"
    options = (
        Option("memory_mib", int, 2048, "device memory, MiB"),
        Option("native", bool, True, "use the operators written by hand, not primitives alone"),
        Option("without", str, "", "operators to leave out, separated by commas"),
        Option("build_dir", str, "~/.cache/anychip/build", "folder of compiled kernels"),
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        stream, folder = Stream(), Path(values["build_dir"]).expanduser()
        kernels, self._kernels = _open_kernels(values["native"], folder)
        without = [op for op in values["without"].split(",") if op]
        self.operators = make_table(stream, kernels, without)
        self.memory = DeviceMemory(values["memory_mib"] << 20, stream.wait)
        self.queue = DeviceQueue(stream)
        self.weights = DeviceWeights(self.memory)
        self.build = DeviceBuild(folder)

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Vendor: count the devices without initializing one; say why there is none."""
        return Probe((Device(0, f"a {CHIP}"),), versions=versions())

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> PebbleChip:
        """Vendor: set the device, create the stream."""
        if device != 0:
            raise invalid(CHIP, ChipLayer.REGISTRATION, f"no device {device}; there is 0")
        return cls(options)

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, one operator, back out; a device that hangs does so in the child."""
        name = f"{CHIP} device {device}"
        try:
            question = {"device": device, "options": {**options, "native": False}}
            seen = run_in_child(f"{__name__}:double_ones", question, timeout)
        except ChildFailed as error:
            return Finding(name, Verdict.BAD, str(error), "reset the device, then try again")
        verdict = Verdict.GOOD if seen == [2.0] * 4 else Verdict.BAD
        return Finding(name, verdict, f"1 + 1 gave {seen}")

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """An unknown code is fatal and keeps its number."""
        return fact_of(code)

    def capabilities(self) -> Capabilities:
        """Facts that the core decides by. Weights in other formats are converted at load."""
        floats = (DType.FLOAT32,)
        return Capabilities(
            activation_dtypes=floats,
            cache_dtypes=floats,
            weight_formats=("float32",),
            page_sizes=(16, 1),
            facts={"kernels": self._kernels},
        )

    def close(self) -> None:
        """Vendor: destroy the stream. A second close does nothing."""


def _open_kernels(wanted: bool, folder: Path) -> tuple[Mapping[str, Kernel], str]:
    """The C kernels and a text about them. Without a compiler there are none, said aloud."""
    if not wanted:
        return {}, "none: native=false"
    try:
        kernels = load_kernels(folder)
    except NoCompiler as error:
        LOG.warning("chip '%s' has no native operators: %s", CHIP, error.fact.text)
        return {}, f"none: {error.fact.text}"
    return kernels, f"C: {', '.join(kernels)}"


def double_ones(question: Mapping[str, Any]) -> list[float]:
    """What the child of `check_device` does."""
    chip = PebbleChip.open(question["device"], question["options"])
    ones, twos = (Tensor((4,), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in "xy")
    chip.memory.copy_in(ones, memoryview(array("f", [1.0] * 4)))
    spec = CallSpec("add", {"a": ones.spec, "b": ones.spec}, {"y": twos.spec}, {})
    chip.operators.of("add")[0].prepare(Call(spec, {"a": ones, "b": ones}, {"y": twos}))()
    result = array("f", [0.0] * 4)
    chip.memory.copy_out(twos, memoryview(result))
    chip.close()
    return list(result)
