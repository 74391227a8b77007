"""What the system says about the host's memory and cores: for chips that are the host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/")
"""Above /proc and /sys: another folder holds what a test says that they hold."""


def _meminfo(system: Path) -> dict[str, int]:
    """Bytes by name from /proc/meminfo."""
    lines = (line.split() for line in (system / "proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def cgroups(controller: str, system: Path) -> Iterator[Path]:
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


def number_in(file: Path) -> int | None:
    """A whole number that is a file's whole text; None where it is none, or cannot be read."""
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
    for folder in cgroups("memory", system):
        limit = number_in(folder / "memory.max") or number_in(folder / "memory.limit_in_bytes")
        used = number_in(folder / "memory.current") or number_in(folder / "memory.usage_in_bytes")
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
