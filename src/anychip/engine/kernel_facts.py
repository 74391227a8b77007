"""What Linux tells of this process and its threads; zeros or None where it does not."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path

import msgspec

from anychip.engine.evidence import Machine

_SELF = Path("/proc/self")
_PAGE_MOVES = "numa_pages_migrated"
"""Between memories alone: pgmigrate_success also counts pages that compaction moves within one."""
_NANO = 1e-9
_CORE = re.compile(r"[a-z]+\d+")
"""Name of a line of /proc/stat about one core."""


class ThreadTimes(msgspec.Struct, frozen=True):
    """Seconds on a core, and ready to run but without one."""

    ran: float = 0.0
    queued: float = 0.0


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Lifetime counters of this process and what it holds now."""

    core_seconds: float
    major_faults: int
    minor_faults: int
    voluntary_switches: int
    swap_bytes: int
    resident_bytes: int


def thread_times() -> dict[int, ThreadTimes]:
    """Of every thread of this process by its native id."""
    found = {}
    for task in (_SELF / "task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            found[int(task.name)] = _times(task)
    return found


def _times(task: Path) -> ThreadTimes:
    try:
        ran, queued, _ = (task / "schedstat").read_text().split()
        return ThreadTimes(int(ran) * _NANO, int(queued) * _NANO)
    except FileNotFoundError:  # a kernel without it: ticks, and no word about waits for a core
        ticks = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
        return ThreadTimes(sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))


def process_figures() -> ProcessFigures:
    """Of this process, now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    held = _sizes(_SELF / "status", ("VmSwap", "VmRSS"))
    return ProcessFigures(
        core_seconds=used.ru_utime + used.ru_stime,
        major_faults=used.ru_majflt,
        minor_faults=used.ru_minflt,
        voluntary_switches=used.ru_nvcsw,
        swap_bytes=held.get("VmSwap", 0),
        resident_bytes=held.get("VmRSS", 0),
    )


def _sizes(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Lines such as "VmSwap:   12 kB", in bytes."""
    found = {}
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name in names:
                found[name] = int(value.split()[0]) * 1024
    return found


class MachineWatch:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self._cores, self._moved = _core_ticks(), _pages_moved()

    def seen(self) -> Machine:
        """What has happened since."""
        now, moved = _core_ticks(), _pages_moved()
        busy = tuple(
            (b1 - b0) / (t1 - t0) if t1 > t0 else 0.0
            for (b0, t0), (b1, t1) in zip(self._cores, now, strict=False)
        )
        both = None if moved is None or self._moved is None else moved - self._moved
        return Machine(core_busy=busy, pages_migrated=both)


def _core_ticks() -> list[tuple[int, int]]:
    """(busy, all) ticks of each core that this process may see."""
    found = []
    with suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if _CORE.fullmatch(name):
                ticks = [int(field) for field in fields[:8]]  # what guests used is in them already
                found.append((sum(ticks) - ticks[3] - ticks[4], sum(ticks)))
    return found


def _pages_moved() -> int | None:
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = [int(value) for name, value in map(str.split, lines) if name == _PAGE_MOVES]
    return counts[0] if counts else None
