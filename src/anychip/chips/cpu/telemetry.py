"""What the cpu chip tells of itself while it runs."""

from __future__ import annotations

from anychip.chips.cpu.memory import HostStore
from anychip.contract.host import CoreUse
from anychip.contract.optional import Reading, Telemetry


class CpuTelemetry(Telemetry):
    """The host's memory, and how busy this process keeps the cores that it computes on."""

    def __init__(self, store: HostStore, cores: CoreUse) -> None:
        self._store, self._cores = store, cores

    def read(self) -> Reading:
        """Temperature and power are the machine's, not this process's: they are left out."""
        return Reading(self._store.info(), self._cores.share())
