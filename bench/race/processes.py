"""A server's processes: who they are, what memory they hold, how they are ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
GRACE_SECONDS = 30
"""From one way of ending a server to the next one."""


@dataclass(frozen=True)
class Memory:
    """MiB of several processes together. peak: the sum of what each held at most, shared pages
    counted in each. shared_once: what they hold now, a page of n processes as an nth in each."""

    peak: float
    shared_once: float
    processes: int


def _status(pid: int) -> tuple[int, int] | None:
    """Parent and session of a process; None where it has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, _, session = text.rpartition(")")[2].split()[:4]
    return None if state == "Z" else (int(parent), int(session))


def family(root: int) -> list[int]:
    """The process, its descendants, and all of the session that it leads, now alive."""
    pids = sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    known = {pid: status for pid in pids if (status := _status(pid)) is not None}
    found = {pid for pid, (_, session) in known.items() if session == root or pid == root}
    grown = True
    while grown:
        children = {pid for pid, (parent, _) in known.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return sorted(found)


def memory_of(pids: Iterable[int]) -> Memory:
    """What these processes hold; those that end meanwhile count as nothing."""
    held = [sizes for pid in pids if (sizes := _sizes(pid)) is not None]
    peak, shared = (sum(column) / 1024 for column in zip(*held, strict=True)) if held else (0, 0)
    return Memory(peak, shared, len(held))


def _sizes(pid: int) -> tuple[int, int] | None:
    """VmHWM and Pss, KiB; None where the process has ended."""
    try:
        most = re.search(r"^VmHWM:\s+(\d+)", (PROC / f"{pid}/status").read_text(), re.M)
        now = re.search(r"^Pss:\s+(\d+)", (PROC / f"{pid}/smaps_rollup").read_text(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(most[1]), int(now[1])) if most and now else None


def end(leader: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> list[int]:
    """End a process that leads its session, and all of its family, by their ids.

    The leader is asked first, since it knows how to end the others; then all are asked, then
    killed, each after `grace` seconds. Returns the ids that had to be killed. Raises
    subprocess.TimeoutExpired where even that does not end the leader.
    """
    pids, told = family(leader.pid), [leader.pid]
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        _send(told, number)
        until = time.monotonic() + grace
        while _living(leader, pids) and time.monotonic() < until:
            time.sleep(0.05)
        pids = sorted({*pids, *family(leader.pid)})
        if number != signal.SIGKILL:
            told = _living(leader, pids)
    leader.wait(grace)
    return told


def _living(leader: subprocess.Popen[bytes], pids: Iterable[int]) -> list[int]:
    leader.poll()  # reaps it
    return sorted({pid for pid in pids if _status(pid) is not None})


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it ended by itself
