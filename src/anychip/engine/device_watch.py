"""Reads the device's own counters in a thread, outside the engine's loop.

It calls `Telemetry.read` alone, which the contract lets any thread call. A pool's statistics and
the traffic are the memory layer's, which belongs to the queue's thread: the runner reads them.
"""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

from anychip.contract.optional import Telemetry
from anychip.figures import DeviceFigures, Guard

STATUS = Path("/proc/self/status")
_LEAVE_S = 5.0


class DeviceWatch:
    """One reading each interval. telemetry: the chip's, None where it has none."""

    def __init__(self, telemetry: Telemetry | None, interval_s: float) -> None:
        self.latest: DeviceFigures | None = None
        self._telemetry, self._interval_s = telemetry, interval_s
        self._guard = Guard("the device")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="device-watch", daemon=True)
        self._thread.start()

    @property
    def errors(self) -> int:
        """How often a reading failed."""
        return self._guard.errors

    def close(self) -> None:
        """End the thread. A driver that never answers is left behind: the process ends anyway."""
        self._ended.set()
        self._thread.join(_LEAVE_S)

    def _watch(self) -> None:
        while not self._ended.is_set():
            self._guard(self._read)
            self._ended.wait(self._interval_s)

    def _read(self) -> None:
        faults, swapped = resource.getrusage(resource.RUSAGE_SELF).ru_majflt, swapped_bytes()
        if self._telemetry is None:
            self.latest = DeviceFigures(
                read_at=time.monotonic(), major_faults=faults, swapped=swapped
            )
            return
        reading = self._telemetry.read()
        memory = reading.memory
        self.latest = DeviceFigures(
            read_at=time.monotonic(),
            memory=(memory.total, memory.used, memory.free, memory.largest),
            source=memory.source,
            utilization=reading.utilization,
            temperature=reading.temperature,
            power=reading.power,
            major_faults=faults,
            swapped=swapped,
        )


def swapped_bytes(status: Path = STATUS) -> int:
    """Bytes of this process that are swapped out; 0 where the system does not tell."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines if line.startswith("VmSwap:"))
    return next((int(words[1]) * 1024 for words in found), 0)
