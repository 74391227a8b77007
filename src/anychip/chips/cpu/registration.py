"""The cpu chip: native kernels for the processor that it finds, numpy where none can be had."""

from __future__ import annotations

import logging
import platform
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.chips.cpu.build import (
    CHIP,
    STATUS,
    CpuBuild,
    KernelChoice,
    KernelLibrary,
    load_kernels,
    versions,
)
from anychip.chips.cpu.build_isa import EMULATED, FEATURES, instruction_sets, runnable_sets
from anychip.chips.cpu.capture import CpuCapture
from anychip.chips.cpu.memory import CpuMemory, CpuTelemetry, HostStore
from anychip.chips.cpu.memory_parts import WEIGHT_FORMATS
from anychip.chips.cpu.memory_weights import CpuWeights
from anychip.chips.cpu.operators import CpuQueue, operator_table
from anychip.chips.cpu.registration_cores import usable_cores
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.compile import NoCompiler
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ContractError, ErrorFact, ErrorKind
from anychip.contract.formats import PLAIN_FORMATS
from anychip.contract.host import CoreUse, host_facts
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import (
    Capabilities,
    Chip,
    Device,
    Option,
    Probe,
    parse_bytes,
    register_chip,
)
from anychip.contract.tensor import Tensor

LOG = logging.getLogger("anychip.chip")
CHOICES = {
    "kernels": ("auto", "native", "prebuilt", "compiled", "host"),
    "isa": ("auto", *FEATURES),
}
BUILD_DIR = Path("~/.cache/anychip/build")


@register_chip(CHIP, contract=(0, 5))
class CpuChip(Chip):
    """The processor and its memory."""

    vendor = "anychip"
    options = (
        Option("threads", int, 0, "threads that compute (0: the cores that this process may use)"),
        Option("build_dir", str, "", f"folder of compiled kernels (default {BUILD_DIR})"),
        Option(
            "kernels", str, "auto", "auto, native (auto but never numpy), prebuilt, compiled, host"
        ),
        Option("isa", str, "auto", f"instruction set: auto, {', '.join(FEATURES)}"),
        Option("memory", str, "0", "limit in bytes, or with K, M or G behind (0: what is there)"),
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._cores = usable_cores()
        choice = _kernel_choice(values, self._cores.count)
        store = HostStore(parse_bytes(CHIP, "memory", values["memory"]))
        self._store = store
        self.memory = CpuMemory(store)
        self.queue = CpuQueue()
        self.build = CpuBuild(choice)
        self.telemetry = CpuTelemetry(store, CoreUse(choice.threads))
        self._threads = choice.threads
        self._kernels, self._reason = _open_kernels(values["kernels"], choice)
        self.operators = operator_table(self._kernels)
        self.weights = CpuWeights(store, self._kernels)
        self.capture = None if self._kernels is None else CpuCapture(self._kernels)

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Always there: one device."""
        try:
            memory = host_facts().total
        except (OSError, KeyError) as error:
            return Probe((), f"the memory of this machine cannot be read: {error}")
        return Probe((Device(0, processor_name(), memory),), versions=versions())

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> CpuChip:
        """Load the kernels, or compile them first. Raises ContractError, ChipError."""
        return cls(options)

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, softmax, back out, in a child process."""
        name = f"{CHIP} device {device}"
        try:
            seen = run_in_child(f"{__name__}:soften_ones", dict(options), timeout)
        except ChildFailed as error:
            return Finding(name, Verdict.BAD, str(error), "run it again with a longer timeout")
        if isinstance(seen, str):
            return Finding(name, Verdict.BAD, seen, f"anychip build {CHIP}")
        good = seen == [0.25] * 4
        return Finding(name, Verdict.GOOD if good else Verdict.BAD, f"softmax of ones gave {seen}")

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """What a kernel's status means."""
        if code in STATUS:
            return STATUS[code]
        return ErrorFact(ChipLayer.OPERATORS, ErrorKind.KERNEL, True, f"unknown status {code}")

    def capabilities(self) -> Capabilities:
        """float32 and bfloat16 compute; quantized weights stay as they are, given kernels."""
        native = self._kernels is not None
        dots = self._kernels is not None and self._kernels.isa in ("amx", EMULATED, "avx512bf16")
        floats = (DType.FLOAT32, DType.BFLOAT16)
        return Capabilities(
            activation_dtypes=floats[::-1] if dots else floats,  # bfloat16 first where it is faster
            cache_dtypes=(*floats, DType.FLOAT16, DType.INT8, DType.FLOAT8_E4M3),
            weight_formats=WEIGHT_FORMATS if native else PLAIN_FORMATS,
            page_sizes=(16, 1, 32, 64, 128),
            step_tokens=512,
            facts=self._facts(),
        )

    def _facts(self) -> dict[str, str]:
        if self._kernels is None:
            return {"kernels": f"numpy (slow): {self._reason}", "isa": "none", "threads": "numpy's"}
        cores = self._cores
        return {
            "kernels": str(self._kernels.path),
            "built": self._kernels.origin,
            "isa": self._kernels.isa,
            "threads": str(self._threads),
            "cores": f"{cores.count} ({cores.source})",
        }

    def close(self) -> None:
        """End the threads."""
        self._store.close()
        if self._kernels is not None:
            self._kernels.close()


def _kernel_choice(values: Mapping[str, Any], cores: int) -> KernelChoice:
    for name, offers in CHOICES.items():
        if values[name] not in offers:
            raise _refused(name, values[name], f"say one of {', '.join(offers)}")
    if not 0 <= values["threads"] <= 1024:
        raise _refused("threads", values["threads"], "say 0 to 1024")
    isa = instruction_sets()[0] if values["isa"] == "auto" else values["isa"]
    if isa not in runnable_sets():
        raise _refused("isa", isa, f"this processor runs {', '.join(runnable_sets())}")
    if isa == EMULATED:
        LOG.warning("chip '%s' emulates its tiles: slow, for work on the kernels of amx", CHIP)
    if values["kernels"] == "host" and values["isa"] != "auto":
        raise _refused("isa", isa, "kernels=host is numpy and has none; leave one of them out")
    folder = _build_folder(Path(values["build_dir"] or BUILD_DIR))
    origin = values["kernels"] if values["kernels"] in ("prebuilt", "compiled") else "auto"
    return KernelChoice(isa, values["threads"] or cores, folder, origin)


def _build_folder(named: Path) -> Path:
    try:
        return named.expanduser()
    except RuntimeError as error:  # no HOME, and the user is not in the system's list
        way_out = "the home folder is not known; name a folder in full with --build-dir"
        raise _refused("build_dir", named, way_out) from error


def _refused(option: str, value: object, way_out: str) -> ContractError:
    return ContractError(f"chip '{CHIP}': option {option}={value}: {way_out}")


def _open_kernels(wanted: str, choice: KernelChoice) -> tuple[KernelLibrary | None, str]:
    """The kernels, or None and why not; without them everything is slow, so it is said loudly."""
    if wanted == "host":
        reason = "asked for with kernels=host"
    else:
        try:
            return load_kernels(choice), ""
        except NoCompiler as error:
            if wanted != "auto":
                raise
            reason = error.fact.text
    LOG.warning("chip '%s' computes with numpy, many times slower than kernels: %s", CHIP, reason)
    return None, reason


def processor_name() -> str:
    """As /proc/cpuinfo names it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def soften_ones(options: Mapping[str, Any]) -> list[float] | str:
    """What the child of `check_device` does. A text is about the build layer, not the device."""
    try:
        chip = CpuChip(options)
    except ChipError as error:
        if error.fact.layer is not ChipLayer.BUILD:
            raise
        return str(error)
    ones, y = (Tensor((1, 4), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in range(2))
    chip.memory.copy_in(ones, memoryview(array("f", [1.0] * 4)))
    spec = CallSpec("softmax", {"logits": ones.spec}, {"y": y.spec}, {})
    chip.operators.of("softmax")[0].prepare(Call(spec, {"logits": ones}, {"y": y}))()
    result = array("f", [0.0] * 4)
    chip.memory.copy_out(y, memoryview(result))
    chip.close()
    return list(result)
