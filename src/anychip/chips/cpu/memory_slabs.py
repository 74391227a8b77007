"""Slabs: large pieces of host memory that weights are cut from, so that they lie in huge pages."""

from __future__ import annotations

import weakref

import numpy as np

from anychip.chips.cpu.memory_pages import HUGE_PAGE, Pages, Slab, advise_system
from anychip.chips.cpu.memory_parts import ALIGNMENT, Bytes

SLAB = 128 << 20
"""Bytes of a slab, at least. Address space until it is touched, so that few have an end."""


class Slabs:
    """Cuts long-lived blocks from slabs.

    A large array gets huge pages from the system, and reading weights through small ones costs
    half of the memory's speed. A block is cut from the first slab that has room: what a block
    leaves of its last huge page is another one's, and no slab's end is given up for a block that
    it is too short for. A slab goes when the last block cut from it does.
    """

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages or Pages(advise_system())
        self._slabs: list[Slab] = []

    def cut(self, nbytes: int) -> Bytes:
        """A block of at least so many bytes, aligned. Raises MemoryError."""
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        self._slabs = [slab for slab in self._slabs if slab.array() is not None]
        for slab in self._slabs:
            array = slab.array()
            if array is not None and slab.end - slab.at >= size:
                return self._cut(array, slab, size)
        whole = max(-(-size // HUGE_PAGE) * HUGE_PAGE, SLAB)
        array, start = _touched_by_nobody(whole, HUGE_PAGE)
        slab = Slab(weakref.ref(array), start + whole, at=start, tried=start)
        self._slabs.append(slab)
        return self._cut(array, slab, size)

    def _cut(self, array: Bytes, slab: Slab, size: int) -> Bytes:
        slab.at += size
        self._pages.reach(slab)
        return array[slab.at - size : slab.at]

    def close(self) -> None:
        """See to the pages of slabs no longer."""
        self._pages.close()


def fresh(nbytes: int, border: int) -> Bytes:
    """Memory that begins at a multiple of `border`; the system gives pages as they are touched."""
    array, start = _touched_by_nobody(nbytes, border)
    return array[start : start + nbytes]


def _touched_by_nobody(nbytes: int, border: int) -> tuple[Bytes, int]:
    """An array with so many bytes from a border on, and where that border is in it."""
    array = np.empty(nbytes + border, np.uint8)
    return array, -array.ctypes.data % border
