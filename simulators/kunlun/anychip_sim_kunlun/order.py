"""What is asked of a build, and what it calls with a line of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip_sim_kunlun.faults import Fault
from anychip_sim_kunlun.profiles import Profile

Say = Callable[[str], None]


@dataclass(frozen=True)
class TreeOrder:
    """What to make, and where.

    cache: folder of object files and locks. devices: how many cards. memory_mib: of each card.
    driver, runtime: versions, up to four numbers. jobs: compilers at a time.
    """

    prefix: Path
    cache: Path
    profile: Profile
    devices: int
    memory_mib: int
    driver: str
    runtime: str
    faults: tuple[Fault, ...] = ()
    jobs: int = 2

    def facts(self) -> dict[str, Any]:
        """What decides how the tree turns out, besides sources and compiler."""
        return {
            "profile": self.profile.name,
            "devices": self.devices,
            "memory_mib": self.memory_mib,
            "driver": self.driver,
            "runtime": self.runtime,
            "faults": [str(fault) for fault in self.faults],
        }

    @property
    def xpu_rt(self) -> str:
        """What the telemetry tool calls XPU-RT; of a runtime asked for, its first numbers."""
        if self.runtime == self.profile.components["XRE"]:
            return self.profile.xpu_rt
        return ".".join(self.runtime.split(".")[:3])
