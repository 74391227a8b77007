"""What the system says about the host's memory and cores: for chips that are the host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

SYSTEM = Path("/")
"""Above /proc and /sys: another folder holds what a test says that they hold."""


def _meminfo(system: Path) -> dict[str, int]:
    """Bytes by name from /proc/meminfo."""
    lines = (line.split() for line in (system / "proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def _cgroups(controller: str, system: Path) -> Iterator[Path]:
    """Folders of this process's cgroups for memory or cpu, from its own up to the root.

    Version 2 has one tree; version 1 one for each controller, or one for several. A container may
    see its own cgroup as the root: then the folders below are missing, and the root holds.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mount in (controllers, controller) if controllers else ("", "unified"):
            root = system / "sys/fs/cgroup" / mount
            own = root / path.lstrip("/")
            yield from (p for p in (own, *own.parents) if p == root or root in p.parents)


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


@dataclass(frozen=True)
class HostFacts:
    """What the system says now, in bytes: the smallest limit, and what is left below it."""

    total: int
    available: int
    source: str


def host_facts(system: Path = SYSTEM) -> HostFacts:
    """MemTotal and MemAvailable, or the tightest cgroup where that is less."""
    memory = _meminfo(system)
    total, source = memory["MemTotal"], "MemTotal of /proc/meminfo"
    available = memory["MemAvailable"]
    for folder in _cgroups("memory", system):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit is None or used is None or limit >= memory["MemTotal"]:
            continue
        available = min(available, max(limit - used + _reclaimable(folder), 0))
        if limit < total:
            total, source = limit, f"memory limit of {folder}"
    return HostFacts(total, available, source)


def _reclaimable(folder: Path) -> int:
    """Bytes of file cache that the kernel gives up first."""
    try:
        words = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return next((int(w[1]) for w in words if w[0] == "inactive_file"), 0)


@dataclass(frozen=True)
class CoresHere:
    """How many cores this process may compute on, and what says so."""

    count: int
    source: str


def usable_cores(system: Path = SYSTEM) -> CoresHere:
    """Cores of the affinity, or as many as the tightest cgroup's quota comes to, rounded up."""
    if hasattr(os, "sched_getaffinity"):
        cores, source = len(os.sched_getaffinity(0)), "affinity of the process"
    else:
        cores, source = os.cpu_count() or 1, "cores of the machine"
    for folder in _cgroups("cpu", system):
        quota = _quota(folder)
        if quota is not None and ceil(quota) < cores:
            cores, source = max(ceil(quota), 1), f"CPU quota of {quota:g} in {folder}"
    return CoresHere(cores, source)


def _quota(folder: Path) -> float | None:
    """Cores that a cgroup's processes may keep busy together; None without a limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):  # version 1, or the root, which has no such file
        given = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        return given[0] / given[1] if given[0] and given[1] else None
    return int(quota) / int(period) if quota.isdigit() and int(period) else None


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class CoreUse:
    """How busy this process keeps its cores. cores: how many it computes on.

    Calls may come from any thread, one at a time.
    """

    SHORTEST_S = 0.05
    """Seconds; a share over less than this says little."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._seen, self._used = time.monotonic(), time.process_time()
        self._share: float | None = None

    def share(self) -> float | None:
        """Since the call before, 0 to 1; None where too little time has passed since the start."""
        now, used = time.monotonic(), time.process_time()
        if now - self._seen >= self.SHORTEST_S:
            spent = (used - self._used) / (now - self._seen)
            self._share = min(max(spent / self._cores, 0.0), 1.0)
            self._seen, self._used = now, used
        return self._share
