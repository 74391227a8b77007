"""What is counted for metrics beside the scheduler's books, how it is counted and how it travels.

Counting must never disturb what is counted: it goes through a `Guard`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

STEP_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0),
)
STEP_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
STEP_TOKENS = (*STEP_ROWS, 2048.0, 4096.0, 8192.0, 16384.0)
GRAMMAR_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
"""Upper bounds of buckets; seconds, rows and tokens of a step, seconds of grammars."""

COMMITTED = ("weights", "cache pages", "recurrent state")
"""Uses of the memory plan whose share of the device's memory is watched."""
MOST_COMMITTED = 0.85
"""The share above which memory that the host backs begins to page."""

log = logging.getLogger("anychip.engine")


def committed_share(memory: dict[str, int]) -> float:
    """Share of the memory that weights and cache take. memory: bytes by use, with "total"."""
    total = memory.get("total", 0)
    return sum(memory.get(use, 0) for use in COMMITTED) / total if total else 0.0


class Guard:
    """Runs what only counts: an error is counted, the first one logged, and none goes further."""

    def __init__(self, what: str) -> None:
        self.errors = 0
        self._what = what

    def __call__(self, count: Callable[[], None]) -> None:
        """Run it."""
        try:
            count()
        except Exception as error:  # noqa: BLE001 (figures must not end what they are about)
            self.errors += 1
            if self.errors == 1:
                told = f"{type(error).__name__}: {error}"
                log.warning("figures of %s are incomplete: %s", self._what, told)


class Buckets(msgspec.Struct, array_like=True):
    """Observations of a histogram: how many fell in each bucket, the last one open above.

    counts: not cumulative; empty until the first observation. total: their sum.
    """

    counts: list[int] = []
    total: float = 0.0

    def observe(self, value: float, bounds: Sequence[float], times: int = 1) -> None:
        """Count a value. bounds: upper bounds of the buckets, the same at each call."""
        if not self.counts:
            self.counts = [0] * (len(bounds) + 1)
        self.counts[bisect_left(bounds, value)] += times
        self.total += value * times


class PoolFigures(msgspec.Struct, frozen=True, array_like=True):
    """What a chip's pool holds, bytes; see `contract.memory.PoolStatistics`."""

    used: int
    cached: int
    asked: int
    fragmentation: float


class CopyFigures(msgspec.Struct, frozen=True, array_like=True):
    """Copies between host and device so far; see `contract.memory.Traffic`."""

    bytes_in: int
    bytes_out: int
    seconds_in: float
    seconds_out: float


class OperatorFigures(msgspec.Struct, array_like=True):
    """One operator in the steps that were timed."""

    seconds: float = 0.0
    calls: int = 0


class RunFigures(msgspec.Struct, array_like=True):
    """What the runner counts, in the thread that drives the chip's queue.

    seconds: of whole runs; chip_seconds: of them, in launches, copies and waits. operators: by
    name. pool, copies: as they were last read there, None where the chip has no such numbers.
    """

    seconds: float = 0.0
    chip_seconds: float = 0.0
    masks: Buckets = msgspec.field(default_factory=Buckets)
    host_calls: int = 0
    host_bytes: int = 0
    operators: dict[str, OperatorFigures] = {}
    pool: PoolFigures | None = None
    copies: CopyFigures | None = None
    errors: int = 0


class DeviceFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One reading of the device and of the engine process's memory.

    read_at: seconds of the system's monotonic clock. memory: total, used, free and largest
    allocation in bytes, and `source` of them; None where the chip has no telemetry.
    """

    read_at: float
    memory: tuple[int, int, int, int] | None = None
    source: str = ""
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    major_faults: int = 0
    swapped: int = 0


class EngineFigures(msgspec.Struct, array_like=True):
    """A snapshot of the engine's counts.

    taken_at: seconds of the system's monotonic clock. waiting: requests by what they wait for.
    tokens_in_flight: positions that running requests have in the cache. Dicts by phase.
    chip_errors: by (layer, kind). errors: failures to count something.
    """

    taken_at: float = 0.0
    waiting: dict[str, int] = {}
    tokens_in_flight: int = 0
    step_seconds: dict[str, Buckets] = {}
    step_tokens: dict[str, int] = {}
    step_rows: dict[str, int] = {}
    batch_rows: Buckets = msgspec.field(default_factory=Buckets)
    batch_tokens: Buckets = msgspec.field(default_factory=Buckets)
    python_seconds: dict[str, float] = {}
    grammar_compiles: Buckets = msgspec.field(default_factory=Buckets)
    chip_errors: dict[tuple[str, str], int] = {}
    errors: int = 0
    run: RunFigures = msgspec.field(default_factory=RunFigures)
    device: DeviceFigures | None = None
