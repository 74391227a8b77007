"""A vendor's management library in the form of NVML: many have its functions under a prefix of
their own, with structs of their own."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ctypes import byref, c_char, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.sdkbase.errors import ErrorTable
from anychip.sdkbase.library import Interface, VendorLibrary, declared

CALLS = declared(
    "Init: Shutdown: SystemGetDriverVersion:pn DeviceGetCount:p DeviceGetHandleByIndex:np "
    "DeviceGetSerial:ppn DeviceGetPciInfo:pp DeviceGetMemoryInfo:pp DeviceGetUtilizationRates:pp "
    "DeviceGetTemperature:pip DeviceGetPowerUsage:pp"
)


@dataclass(frozen=True)
class ManagementForm:
    """How a vendor's library differs from the others.

    space: its name in the table of errors. prefix: of its functions. layouts: function -> what is
    read of its answer, as `struct` writes it: total, free and used bytes; percent; degrees;
    milliwatts; of PCI what `pci` is to give. texts: function -> bytes that it wants for a text.
    struct_bytes: of the largest answer. sensor: the die's number among the temperatures.
    """

    space: str
    prefix: str
    layouts: Mapping[str, str]
    texts: Mapping[str, int]
    struct_bytes: int
    sensor: int = 0

    @property
    def interface(self) -> Interface:
        """The functions by their whole names."""
        calls = {f"{self.prefix}{name}": letters for name, letters in CALLS.items()}
        return Interface(self.space, calls)


class ManagementLibrary(VendorLibrary):
    """Loaded and started. index: the physical card, whatever devices are visible to programs.

    Raises ChipError.
    """

    def __init__(self, path: Path | str, form: ManagementForm, errors: ErrorTable) -> None:
        super().__init__(path, form.interface, errors)
        self._form = form
        self._call("Init")

    def _call(self, name: str, *arguments: Any) -> None:
        self.call(f"{self._form.prefix}{name}", *arguments)

    def _handle(self, index: int) -> c_void_p:
        handle = c_void_p()
        self._call("DeviceGetHandleByIndex", index, byref(handle))
        return handle

    def _read(self, name: str, index: int, *before: Any) -> tuple[Any, ...]:
        answer = (c_char * self._form.struct_bytes)()
        self._call(name, self._handle(index), *before, answer)
        return struct.unpack_from(self._form.layouts[f"{self._form.prefix}{name}"], answer)

    def _text(self, name: str, *before: Any) -> str:
        text = (c_char * self._form.texts[f"{self._form.prefix}{name}"])()
        self._call(name, *before, text, len(text))
        return text.value.decode()

    def close(self) -> None:
        """Shut down; such a library counts how often it was started."""
        self._call("Shutdown")

    def count(self) -> int:
        """Cards in the machine."""
        return self.ask(f"{self._form.prefix}DeviceGetCount", c_uint)

    def memory(self, index: int) -> tuple[int, int, int]:
        """Total, free and used bytes of device memory, all processes counted."""
        total, free, used = self._read("DeviceGetMemoryInfo", index)
        return total, free, used

    def utilization(self, index: int) -> float:
        """Share of the last sample in which kernels ran, 0 to 1."""
        return float(self._read("DeviceGetUtilizationRates", index)[0]) / 100

    def temperature(self, index: int) -> float:
        """Degrees Celsius of the die."""
        return float(self._read("DeviceGetTemperature", index, self._form.sensor)[0])

    def power(self, index: int) -> float:
        """Watts; the library tells milliwatts."""
        return float(self._read("DeviceGetPowerUsage", index)[0]) / 1000

    def serial(self, index: int) -> str:
        """The card's serial number."""
        return self._text("DeviceGetSerial", self._handle(index))

    def driver_version(self) -> str:
        """The kernel driver's."""
        return self._text("SystemGetDriverVersion")
