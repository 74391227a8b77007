"""Counts what a runner does, for metrics, in the thread that drives the chip's queue."""

from __future__ import annotations

import math
import time

from anychip.contract.layer import empty_slots
from anychip.contract.memory import Memory
from anychip.figures import CopyFigures, Guard, PoolFigures, RunFigures
from anychip.ops.host import HostTraffic
from anychip.run.choosing import Shapes
from anychip.run.timed_run import TimedSteps

MEMORY_EVERY_S = 1.0
"""Seconds between two looks at pool and traffic: they belong to the queue's thread, which is why
the runner looks, and a pool's are as much work as it has blocks."""


class RunMeter:
    """One runner's counts. Nothing here raises."""

    def __init__(self, memory: Memory, host: HostTraffic) -> None:
        self.figures = RunFigures()
        self._memory, self._host = memory, host
        empty = empty_slots(type(memory))
        self._has_pool, self._has_traffic = "statistics" not in empty, "traffic" not in empty
        self._guard = Guard("the runner")
        self._looked = -math.inf

    def on_chip(self, begun: float) -> None:
        """Launches, copies or a wait ended that began at `begun` (`time.monotonic`)."""
        self.figures.chip_seconds += time.monotonic() - begun

    def ran(self, begun: float, shapes: Shapes, timed: TimedSteps) -> None:
        """A step that began at `begun` is over."""
        now = time.monotonic()
        found = self.figures
        found.seconds += now - begun
        found.masks, found.operators = shapes.masks.seconds, timed.operators
        found.host_calls, found.host_bytes = self._host.calls, self._host.nbytes
        if now - self._looked >= MEMORY_EVERY_S:
            self._looked = now
            self._guard(self._look)
            found.errors = self._guard.errors

    def _look(self) -> None:
        if self._has_pool:
            pool = self._memory.statistics()
            self.figures.pool = PoolFigures(pool.used, pool.cached, pool.asked, pool.fragmentation)
        if self._has_traffic:
            copies = self._memory.traffic()
            self.figures.copies = CopyFigures(
                copies.bytes_in, copies.bytes_out, copies.seconds_in, copies.seconds_out
            )
