"""M6: opening and closing a device many times leaves nothing behind in the process or on it."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from anychip.conform.expect import Broken, expect, judged
from anychip.conform.proof import Proof, passed
from anychip.conform.scratch import KIB, MIB, Scratch
from anychip.conform.subject import Subject
from anychip.contract.host import resident

OPENS = 1000
WARM = 20
"""Opens before the first look: libraries load, caches fill. Never fewer after it."""
SECONDS = 50.0
"""What the opens behind the first look may take together."""
GROWTH, LEAST_GROWTH = 64 * KIB, 8 * MIB
"""Bytes by which the process may grow for each open, and however few there are."""
DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True)
class _Held:
    """What a process holds. used: bytes of the device just after an open, 0 where they are the
    host's: there `resident` tells them, and other processes move them. heap: bytes that the C
    library has handed out; what stays may lie in memory that was the process's before."""

    used: int
    resident: int
    heap: int
    descriptors: int
    threads: int


@judged
def open_and_close(subject: Subject) -> Proof:
    """1,000 times, fewer where one open is slow; each leaves an allocation for `close`."""
    subject.reopen()  # so that the device is open once at a time
    began = time.monotonic()
    before = _held_after(subject, WARM)
    seconds = (time.monotonic() - began) / WARM
    opens = opens_for(seconds)
    began = time.monotonic()
    after = _held_after(subject, opens - WARM)
    took = time.monotonic() - began
    _compare(before, after, opens - WARM)
    text = f"{opens:,} times"
    if opens < OPENS:
        text += f", not {OPENS:,}: one takes {seconds:.2g} s"
    return passed(f"{text}: nothing stayed behind", opens=opens, seconds=took)


def opens_for(seconds: float) -> int:
    """How many opens: all where one takes so many seconds, else those that fit; 40 at least."""
    return max(2 * WARM, min(OPENS, WARM + int(SECONDS / max(seconds, 1e-6))))


def _once(subject: Subject) -> int:
    """Open, touch some memory, close twice; bytes that were used just after the open."""
    chip = subject.fresh()
    info = chip.memory.info()
    Scratch(chip).touched(min(MIB, info.largest // 4))
    chip.close()
    try:
        chip.close()
    except Exception as error:
        raise Broken(f"a second close raises {type(error).__name__}: {error}") from error
    return 0 if chip.memory.unified else info.used


def _held_after(subject: Subject, opens: int) -> _Held:
    """What is held when so many opened devices are closed and forgotten."""
    for _ in range(opens - 1):
        _once(subject)
    gc.collect()
    used = _once(subject)
    gc.collect()
    descriptors = len(os.listdir(DESCRIPTORS))
    threads = threading.active_count()
    tasks = DESCRIPTORS.with_name("task")
    if tasks.exists():
        threads = len(os.listdir(tasks))
    return _Held(used, resident(), _heap(), descriptors, threads)


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _heap() -> int:
    """Bytes in use, mapped ones included; 0 where the C library does not tell."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _MallInfo
    told = ask()
    return int(told.uordblks + told.hblkhd)


def _compare(before: _Held, after: _Held, opens: int) -> None:
    """Raises Broken."""
    times = f"after {opens:,} times open and close"
    grown = max(after.resident - before.resident, after.heap - before.heap)
    most = max(GROWTH * opens, LEAST_GROWTH)
    text = f"{times} the process is {grown // KIB:,} KiB larger, at most {most // KIB:,} are noise"
    expect(grown <= most, text)
    for name, first, last in (
        ("file descriptors", before.descriptors, after.descriptors),
        ("threads", before.threads, after.threads),
    ):
        expect(last <= first, f"{times} there are {last} {name}, {first} at the start")
    more = after.used - before.used
    expect(more <= 0, f"{times} {more:,} bytes more of the device are in use")
