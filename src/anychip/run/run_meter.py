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
    """One runner's counts. Nothing here raises. looks_at: when `look` is due."""

    def __init__(self, memory: Memory, host: HostTraffic) -> None:
        self.figures = RunFigures()
        self._memory, self._host = memory, host
        empty = empty_slots(type(memory))
        self._has_pool, self._has_traffic = "statistics" not in empty, "traffic" not in empty
        self._guard = Guard("the runner")
        self.looks_at = -math.inf

    def follow(self, shapes: Shapes, timed: TimedSteps) -> None:
        """Tell what these have counted, and will; and what ran on the host."""
        found = self.figures
        found.masks, found.operators = shapes.masks.seconds, timed.operators
        found.host_calls, found.host_bytes = self._host.calls, self._host.nbytes

    def ran(self, begun: float, on_chip: float) -> None:
        """A step that began at `begun` (`time.monotonic`) is over. on_chip: seconds of it in
        launches, copies and waits."""
        now = time.monotonic()
        self.figures.seconds += now - begun
        self.figures.chip_seconds += on_chip
        if now >= self.looks_at:
            self.look(now)

    def look(self, now: float) -> None:
        """Look at pool and traffic, as is due at `looks_at`."""
        self.looks_at = now + MEMORY_EVERY_S
        self._guard(self._look)
        self.figures.errors = self._guard.errors

    def _look(self) -> None:
        if self._has_pool:
            pool = self._memory.statistics()
            self.figures.pool = PoolFigures(pool.used, pool.cached, pool.asked, pool.fragmentation)
        if self._has_traffic:
            copies = self._memory.traffic()
            self.figures.copies = CopyFigures(
                copies.bytes_in, copies.bytes_out, copies.seconds_in, copies.seconds_out
            )
