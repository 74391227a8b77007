"""How many cores the chip may compute on: affinity of the process, quotas of its cgroups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from anychip.contract.host import SYSTEM, cgroups, number_in


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
    for folder in cgroups("cpu", system):
        quota = _quota(folder)
        if quota is not None and ceil(quota) < cores:
            cores, source = max(ceil(quota), 1), f"CPU quota of {quota:g} in {folder}"
    return CoresHere(cores, source)


def _quota(folder: Path) -> float | None:
    """Cores that a cgroup's processes may keep busy together; None without a limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):  # version 1, or the root, which has no such file
        given = number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us")
        return given[0] / given[1] if given[0] and given[1] else None
    return int(quota) / int(period) if quota.isdigit() and int(period) else None
