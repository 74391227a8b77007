"""Huge pages for slabs: at once where the system has them at hand, after the start elsewhere.

In a virtual machine whose host took back what was free, a huge page may take 5 ms, where 0.2 are
usual; of small pages such a machine mostly has what a start needs. There a slab is filled through
small ones, and they are gathered into huge ones when no more weights come, as fast as it goes.
Reading is slower for that second; a start that waited would be slower by as much as its whole rest.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anychip.chips.cpu.memory_parts import Bytes

LOG = logging.getLogger("anychip.chip")

HUGE_PAGE = 2 << 20
"""What the system gives at once to memory that begins at a multiple of it."""

SLOW_S = 1e-3
"""A huge page that takes longer is not at hand: as small ones its bytes take about as long. What
was in use a moment ago comes first, and quickly, so that each page is timed until one is slow."""

QUIET_S = 0.3
"""How long after the last block gathering begins: no sooner, for packing needs the cores, and no
later, for steps read at half the speed until then."""

LARGE, SMALL, COLLAPSE = 14, 15, 25  # linux/mman.h
Advise = Callable[[int, int, int], bool]
"""(address, bytes, advice) → whether the system did so."""


@dataclass
class Slab:
    """An array's bytes up to `end`, which begin at a huge page. It does not keep the array.

    at: where the next block begins. tried: up to where huge pages are known to come quickly, or
    not to. small: from where on pages are small ones for now; None: nowhere.
    """

    array: weakref.ref[Bytes]
    end: int
    at: int
    tried: int
    small: int | None = None


def advise_system() -> Advise | None:
    """Linux's `madvise`; None where pages cannot be gathered (before Linux 6.1, and elsewhere),
    and where memory has several nodes: a page lies at the node of whose thread touches it first,
    which must be one that computes."""
    if sys.platform != "linux" or _nodes() != "0":
        return None
    call = ctypes.CDLL(None).madvise  # frees the interpreter for as long as it works
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if call(None, 0, COLLAPSE) != 0 or mmap.PAGESIZE >= HUGE_PAGE:
        return None
    return lambda address, nbytes, advice: bool(call(address, nbytes, advice) == 0)


def _nodes() -> str:
    """Numbers of the memory's nodes."""
    try:
        return Path("/sys/devices/system/node/online").read_text().strip()
    except OSError:  # a kernel that was built for one
        return "0"


def first_touch(array: Bytes, at: int) -> float:
    """Seconds that the first byte of a page takes."""
    began = time.perf_counter()
    array[at] = 0
    return time.perf_counter() - began


class Pages:
    """Sees to the pages of slabs. touch: seconds that a page takes. quiet_s: see QUIET_S."""

    def __init__(
        self,
        advise: Advise | None,
        touch: Callable[[Bytes, int], float] = first_touch,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._advise, self._touch, self._quiet_s = advise, touch, quiet_s
        self._slow: deque[Slab] = deque()
        self._reached_s = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None  # there is one while slabs wait
        self._lock = threading.Lock()

    def reach(self, slab: Slab) -> None:
        """A block was cut, up to `slab.at`; nobody has touched it yet."""
        self._reached_s = time.monotonic()
        array = slab.array()
        if self._advise is None or array is None:
            return
        while slab.small is None and slab.tried < slab.at:
            if self._touch(array, slab.tried) > SLOW_S:
                slab.small = slab.tried + HUGE_PAGE
                self._advise(array.ctypes.data + slab.small, slab.end - slab.small, SMALL)
                self._wait_for_end(slab)
            slab.tried += HUGE_PAGE

    def close(self) -> None:
        """Gather no more. Returns when nothing here touches a slab."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _wait_for_end(self, slab: Slab) -> None:
        with self._lock:
            self._slow.append(slab)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="anychip-pages", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(self._reached_s + self._quiet_s - time.monotonic()):
            if time.monotonic() < self._reached_s + self._quiet_s:
                continue
            with self._lock:
                if not self._slow:
                    self._thread = None
                    return
                slab = self._slow.popleft()
            self._gather(slab)

    def _gather(self, slab: Slab) -> None:
        """What blocks have of a slab's small pages; what comes later finds huge ones."""
        assert slab.small is not None
        done = wanted = 0
        if not self._told(slab, slab.small, slab.end - slab.small, LARGE):
            return
        for at in range(slab.small, slab.at, HUGE_PAGE):
            if self._closed.is_set():
                return
            wanted += 1
            done += self._told(slab, at, HUGE_PAGE, COLLAPSE)
        if slab.array() is not None:
            LOG.debug("gathered %d of %d huge pages that did not come quickly", done, wanted)

    def _told(self, slab: Slab, at: int, nbytes: int, advice: int) -> bool:
        """Whether the system did so. A slab that is gone needs nothing."""
        array = slab.array()
        if array is None or self._advise is None or nbytes <= 0:
            return False
        return self._advise(array.ctypes.data + at, nbytes, advice)
