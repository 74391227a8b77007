"""What a server and its engine hold, second by second, and whether it grows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np

MIB = 1 << 20
COMMON = ("model_name=", "chip=")


@dataclass(frozen=True)
class Sample:
    """At `second`: of server and engine MiB resident, open files and threads; pages by state."""

    second: float
    server_mib: float
    engine_mib: float
    server_files: int
    engine_files: int
    server_threads: int
    engine_threads: int
    pages_free: int
    pages_cached: int
    pages_held: int
    steps: int

    def idle(self) -> tuple[int, ...]:
        """What has to be the same again whenever nobody asks anything."""
        return (
            self.engine_files,
            self.engine_threads,
            self.pages_free + self.pages_cached,
            self.pages_held,
        )


def take_sample(second: float, server: int, engine: int, url: str) -> Sample:
    pages = read_metrics(url)
    return Sample(
        second,
        resident_mib(server),
        resident_mib(engine),
        open_files(server),
        open_files(engine),
        threads(server),
        threads(engine),
        *(int(pages[f'anychip_kv_pages state="{s}"']) for s in ("free", "evictable", "held")),
        int(pages["anychip_steps_total"]),
    )


def read_metrics(url: str) -> dict[str, float]:
    """The numbers of /metrics under their names, the labels that all have left out."""
    found = {}
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith("anychip_"):
            name, _, value = line.rpartition(" ")
            plain, _, labels = name.rstrip("}").partition("{")
            own = [part for part in labels.split(",") if not part.startswith(COMMON)]
            found[" ".join([plain, *filter(None, own)])] = float(value)
    return found


def resident_mib(pid: int) -> float:
    """Memory that counts for the process alone and its share of what others map too."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / MIB
    raise AssertionError("no Pss in smaps_rollup")


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def child_of(pid: int, word: str) -> int:
    """The child whose command line has `word`."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if word in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise AssertionError(f"process {pid} has no child with {word}")


def growth(samples: list[Sample], name: str) -> float:
    """By how much a straight line through the second half of the samples rises in that half."""
    half = samples[len(samples) // 2 :]
    seconds = np.array([s.second for s in half])
    values = np.array([getattr(s, name) for s in half], float)
    slope = np.polyfit(seconds - seconds[0], values, 1)[0]
    return float(slope * (seconds[-1] - seconds[0]))


def report(samples: list[Sample], seen: dict[str, int]) -> dict:
    """Everything, for a file."""
    names = ("server_mib", "engine_mib", "server_files", "engine_files", "server_threads")
    return {
        "seen": seen,
        "growth_in_second_half": {name: growth(samples, name) for name in names},
        "samples": [asdict(sample) for sample in samples],
    }
