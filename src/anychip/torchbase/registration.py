"""The chip class to derive from. Torch is imported when a device is opened, not before."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from anychip.contract.build import Finding
from anychip.contract.device_check import check_in_child
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, ContractError, ErrorFact, ErrorKind
from anychip.contract.formats import PLAIN_FORMATS
from anychip.contract.operators import Implementation, OperatorTable
from anychip.contract.registration import (
    Capabilities,
    Chip,
    Device,
    Option,
    Probe,
    parse_bytes,
)
from anychip.torchbase.build import INSTALL, TorchBuild

if TYPE_CHECKING:
    from anychip.torchbase.queue import Stream

MISSING = f"torch is not installed: {INSTALL}"
FLOATS = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)
SCALED = (DType.INT8, DType.FLOAT8_E4M3)
"""What a cache may be held in besides, with scales."""
NO_FLOAT8 = frozenset({"mps"})
"""Types of device that lack it."""
OPTIONS = (
    Option("memory", str, "0", "limit in bytes, or with K, M or G behind (0: what is there)"),
    Option("weights", str, "", "dtype that weights are kept in (default: as they come)"),
)


class TorchChip(Chip, abstract=True):
    """A device that torch serves. A vendor writes name, `_type` and what it does better.

    _type: torch's word for the device ("cuda", "npu", or what a plugin registered).
    """

    options: tuple[Option, ...] = OPTIONS
    _type: str = ""

    def __init__(self, device: str, values: Mapping[str, Any]) -> None:
        limit = parse_bytes(self.name, "memory", values["memory"])
        dtype = _weight_dtype(self.name, values["weights"])
        from anychip.torchbase.device import TorchDevice
        from anychip.torchbase.implementations import table
        from anychip.torchbase.memory import TorchTelemetry, torch_memory
        from anychip.torchbase.queue import Stream, TorchQueue
        from anychip.torchbase.weights import TorchWeights

        self._device = device
        stream = Stream(TorchDevice(self.name, device))
        self.memory = torch_memory(stream, limit)
        self.queue = TorchQueue(stream)
        self.operators = OperatorTable((*self._better(stream), *table(stream)))
        self.weights = TorchWeights(self.name, self.memory, dtype)
        self.build = TorchBuild()
        self.telemetry = TorchTelemetry(self.memory, is_host=stream.device.is_host)

    def _better(self, stream: Stream) -> tuple[Implementation, ...]:
        """Implementations that are preferred to torchbase's, where they cover a call."""
        return ()

    @classmethod
    def _devices(cls) -> tuple[Device, ...]:
        """Every device of `_type`. Raises ImportError, RuntimeError."""
        import torch

        module = getattr(torch, cls._type, None)
        count = module.device_count() if module is not None else 0
        return tuple(Device(n, f"{cls._type}:{n}") for n in range(count))

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Whether torch is there, and what it counts."""
        if find_spec("torch") is None:
            return Probe((), MISSING)
        try:
            versions = {"torch": version("torch")}
            devices = cls._devices()
        except (ImportError, OSError, RuntimeError, PackageNotFoundError) as error:
            return Probe((), f"torch does not work here: {error}")
        return Probe(devices, "" if devices else f"torch counts no {cls._type}", versions)

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> TorchChip:
        """Import torch and open the device. Raises ContractError, ChipError."""
        try:
            return cls(cls._torch_name(device, options), options)
        except ImportError as error:
            text = f"chip '{cls.name}': torch cannot be imported: {error}; {MISSING}"
            raise ContractError(text) from error

    @classmethod
    def _torch_name(cls, device: int, options: Mapping[str, Any]) -> str:
        return f"{cls._type}:{device}"

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, doubled, back out, in a child process."""
        return check_in_child(cls, device, timeout, options)

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """Torch has exceptions instead of codes: every code is unknown."""
        return ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, f"unknown code {code}")

    def capabilities(self) -> Capabilities:
        """What torch computes on any device; a vendor narrows it to what was tested."""
        lacking = {DType.FLOAT8_E4M3} if self._device.partition(":")[0] in NO_FLOAT8 else set()
        return Capabilities(
            activation_dtypes=FLOATS,
            cache_dtypes=(*FLOATS, *(d for d in SCALED if d not in lacking)),
            weight_formats=PLAIN_FORMATS,
            page_sizes=(16, 1, 2, 4, 8, 32, 64, 128),
            facts={"torch device": self._device, "attention": "one sequence at a time in prefill"},
        )

    def close(self) -> None:
        """Nothing is held beyond what was allocated."""


def _weight_dtype(chip: str, text: str) -> DType | None:
    if text and text not in PLAIN_FORMATS:
        hint = f"say one of {', '.join(PLAIN_FORMATS)}"
        raise ContractError(f"chip '{chip}': option weights={text}: {hint}")
    return DType(text) if text else None
