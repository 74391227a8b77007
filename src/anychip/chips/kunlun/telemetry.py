"""What XPUML tells of a device: its own counters, never the host's memory, never L3."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import byref, c_char, c_uint, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from anychip.chips.kunlun.memory import CHIP, vendor_error
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.memory import MemoryInfo
from anychip.contract.optional import Reading, Telemetry

STRUCT = 128
"""Bytes of every struct of xpuml.h."""
LAYOUTS = {
    "xpumlDeviceGetMemoryInfo": "8x3Q",  # total, free, used; the last four words are L3's
    "xpumlDeviceGetUtilizationRates": "I",
    "xpumlDeviceGetPciInfo": "16xI4x32s",  # device and vendor number, bus id
    "xpumlDeviceGetTemperature": "I",
    "xpumlDeviceGetPowerUsage": "I",
}
"""What is read of each answer, as `struct` writes it."""
TEXTS = {"xpumlDeviceGetSerial": 30, "xpumlSystemGetDriverVersion": 80}
"""Bytes that xpuml.h wants for each text."""
OTHERS = ("xpumlInit", "xpumlShutdown", "xpumlDeviceGetCount", "xpumlDeviceGetHandleByIndex")
DIE = 0
"""The only temperature sensor of xpuml.h."""
UNTOLD = (3, 21)
"""NOT_SUPPORTED and NO_DATA: a reading is left out. Every other status is an error."""


class Pci(NamedTuple):
    """A card's place on the bus (00000000:03:00.0), its vendor (Kunlun: 0x1d22) and device."""

    bus_id: str
    vendor: int
    device: int


class XpuML:
    """libxpuml. index: the physical one, whatever devices are visible. Raises ChipError."""

    def __init__(self, path: Path | str) -> None:
        try:
            library = ctypes.CDLL(str(path))
            self._calls = {n: getattr(library, n) for n in (*LAYOUTS, *TEXTS, *OTHERS)}
        except (OSError, AttributeError) as error:
            fact = ErrorFact(ChipLayer.BUILD, ErrorKind.VERSION, True, str(error))
            raise ChipError(fact, chip=CHIP) from error
        self._call("xpumlInit")

    def _call(self, name: str, *arguments: Any) -> None:
        status = self._calls[name](*arguments)
        if status:
            raise vendor_error("XPUML", status, name)

    def _handle(self, index: int) -> c_void_p:
        handle = c_void_p()
        self._call("xpumlDeviceGetHandleByIndex", c_uint(index), byref(handle))
        return handle

    def _ask(self, name: str, index: int, *before: Any) -> tuple[Any, ...]:
        answer = (c_char * STRUCT)()
        self._call(name, self._handle(index), *before, answer)
        return struct.unpack_from(LAYOUTS[name], answer)

    def _text(self, name: str, *before: Any) -> str:
        text = (c_char * TEXTS[name])()
        self._call(name, *before, text, c_uint(len(text)))
        return text.value.decode()

    def close(self) -> None:
        """Shut down; the library counts how often it was started."""
        self._call("xpumlShutdown")

    def count(self) -> int:
        """Cards in the machine."""
        value = c_uint()
        self._call("xpumlDeviceGetCount", byref(value))
        return value.value

    def memory(self, index: int) -> tuple[int, int, int]:
        """Total, free and used bytes of device memory, all processes counted."""
        total, free, used = self._ask("xpumlDeviceGetMemoryInfo", index)
        return total, free, used

    def utilization(self, index: int) -> float:
        """Share of the last sample in which kernels ran, 0 to 1."""
        return float(self._ask("xpumlDeviceGetUtilizationRates", index)[0]) / 100

    def temperature(self, index: int) -> float:
        """Degrees Celsius of the die."""
        return float(self._ask("xpumlDeviceGetTemperature", index, DIE)[0])

    def power(self, index: int) -> float:
        """Watts; the library tells milliwatts."""
        return float(self._ask("xpumlDeviceGetPowerUsage", index)[0]) / 1000

    def pci(self, index: int) -> Pci:
        """Where the card sits, and whose it is."""
        numbers, bus_id = self._ask("xpumlDeviceGetPciInfo", index)
        return Pci(bus_id.rstrip(b"\0").decode(), numbers & 0xFFFF, numbers >> 16)

    def serial(self, index: int) -> str:
        """The card's serial number."""
        return self._text("xpumlDeviceGetSerial", self._handle(index))

    def driver_version(self) -> str:
        """The kernel driver's, in full (the runtime tells major.minor alone)."""
        return self._text("xpumlSystemGetDriverVersion")


class KunlunTelemetry(Telemetry):
    """One physical device. info: the memory layer's, for the largest block: XPUML cannot tell."""

    def __init__(self, xpuml: XpuML, index: int, info: Callable[[], MemoryInfo]) -> None:
        self._xpuml, self._index, self._info = xpuml, index, info

    def read(self) -> Reading:
        """What this device does not support is None. Raises ChipError."""
        total, free, used = self._xpuml.memory(self._index)
        memory = MemoryInfo(total, used, free, min(self._info().largest, free), "XPUML")
        asked = self._xpuml.utilization, self._xpuml.temperature, self._xpuml.power
        return Reading(memory, *map(self._told, asked))

    def _told(self, ask: Callable[[int], float]) -> float | None:
        try:
            return ask(self._index)
        except ChipError as error:
            if error.code is None or error.code % 10_000 not in UNTOLD:
                raise
            return None
