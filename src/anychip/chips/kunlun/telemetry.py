"""What XPUML tells of a card: its own counters, never the host's memory, never L3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from anychip.chips.kunlun.memory import ERRORS
from anychip.contract.memory import MemoryInfo
from anychip.sdkbase.management import ManagementForm, ManagementLibrary
from anychip.sdkbase.telemetry import CardTelemetry, Counters

LAYOUTS = {
    "xpumlDeviceGetMemoryInfo": "8x3Q",  # total, free, used; the last four words are L3's
    "xpumlDeviceGetUtilizationRates": "I",
    "xpumlDeviceGetPciInfo": "16xI4x32s",  # device and vendor number, bus id
    "xpumlDeviceGetTemperature": "I",
    "xpumlDeviceGetPowerUsage": "I",
}
"""What is read of each answer, as `struct` writes it; every struct of xpuml.h has 128 bytes, and
a die is its only temperature sensor."""
TEXTS = {"xpumlDeviceGetSerial": 30, "xpumlSystemGetDriverVersion": 80}
"""Bytes that xpuml.h wants for each text."""
XPUML = ManagementForm("XPUML", "xpuml", LAYOUTS, TEXTS, struct_bytes=128, sensor=0)
UNTOLD = tuple(ERRORS.code("XPUML", number) for number in (3, 21))
"""NOT_SUPPORTED and NO_DATA: a reading is left out. Every other status is an error."""


class Pci(NamedTuple):
    """A card's place on the bus (00000000:03:00.0), its vendor (Kunlun: 0x1d22) and device."""

    bus_id: str
    vendor: int
    device: int


class XpuML(ManagementLibrary):
    """libxpuml; its version of the driver is in full (the runtime tells major.minor alone)."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path, XPUML, ERRORS)

    def pci(self, index: int) -> Pci:
        """Where the card sits, and whose it is."""
        numbers, bus_id = self._read("DeviceGetPciInfo", index)
        return Pci(bus_id.rstrip(b"\0").decode(), numbers & 0xFFFF, numbers >> 16)


class KunlunTelemetry(CardTelemetry):
    """One physical card. info: the memory layer's."""

    def __init__(self, xpuml: Counters, index: int, info: Callable[[], MemoryInfo]) -> None:
        super().__init__(xpuml, index, info, UNTOLD)
