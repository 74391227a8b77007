"""What the HTTP process tells of itself, and how old the other figures are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import Metric as Family

from anychip.http.families import Families, Samples
from anychip.http.http_calls import HttpFigures
from anychip.server.metrics.sources import EngineView

PROC = Path("/proc")
_USER, _SYSTEM, _RESIDENT = 11, 12, 21
"""Fields of /proc/PID/stat behind the command's name."""


def server_series(families: Families, engine: EngineView, http: HttpFigures) -> Iterator[Family]:
    """Families of the table SERVER."""
    yield families.many("anychip_snapshot_age_seconds", _ages(engine))
    yield families.many("anychip_http_requests_total", http.requests)
    yield families.many("anychip_http_responses_total", http.responses)
    yield families.one("anychip_http_requests_active", http.active)
    seconds: Samples = {}
    resident: Samples = {}
    for process, pid in (("server", os.getpid()), ("engine", engine.pid)):
        used = None if pid is None else process_use(pid)
        if used is not None:
            seconds[(process,)], resident[(process,)] = used
    yield families.many("anychip_process_cpu_seconds_total", seconds)
    yield families.many("anychip_process_resident_memory_bytes", resident)


def _ages(engine: EngineView) -> Samples:
    now, found = time.monotonic(), engine.figures
    ages: Samples = {}
    if found.taken_at:
        ages[("engine",)] = max(now - found.taken_at, 0.0)
    if found.device is not None:
        ages[("device",)] = max(now - found.device.read_at, 0.0)
    return ages


def process_use(pid: int) -> tuple[float, int] | None:
    """Processor seconds and resident bytes of a process; None where it is gone or nobody tells."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    page = os.sysconf("SC_PAGE_SIZE")
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[_RESIDENT]) * page
