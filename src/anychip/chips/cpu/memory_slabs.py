"""Slabs: large pieces of host memory that weights are cut from, so that they lie in huge pages."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from anychip.chips.cpu.memory_parts import ALIGNMENT, Bytes

SLAB = 128 << 20
"""Bytes of a slab, at least. Address space until it is touched, so that few have an end."""

HUGE_PAGE = 2 << 20
"""What the system gives at once to memory that begins at a multiple of it."""


class _Rest(NamedTuple):
    """Bytes of an array from `start` on that no block has yet. It does not keep the array."""

    array: weakref.ref[Bytes]
    start: int
    size: int


class Slabs:
    """Cuts long-lived blocks from slabs.

    A large array gets huge pages from the system, and reading weights through small ones costs
    half of the memory's speed. A block is cut from the first slab that has room: what a block
    leaves of its last huge page is another one's, and no slab's end is given up for a block that
    it is too short for. A slab goes when the last block cut from it does.
    """

    def __init__(self) -> None:
        self._rests: list[_Rest] = []

    def cut(self, nbytes: int) -> Bytes:
        """A block of at least so many bytes, aligned. Raises MemoryError."""
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        self._rests = [rest for rest in self._rests if rest.array() is not None]
        for index, rest in enumerate(self._rests):
            array = rest.array()
            if array is not None and rest.size >= size:
                self._rests[index] = _Rest(rest.array, rest.start + size, rest.size - size)
                return array[rest.start : rest.start + size]
        whole = max(-(-size // HUGE_PAGE) * HUGE_PAGE, SLAB)
        array, start = _touched_by_nobody(whole, HUGE_PAGE)
        self._rests.append(_Rest(weakref.ref(array), start + size, whole - size))
        return array[start : start + size]


def fresh(nbytes: int, border: int) -> Bytes:
    """Memory that begins at a multiple of `border`; the system gives pages as they are touched."""
    array, start = _touched_by_nobody(nbytes, border)
    return array[start : start + nbytes]


def _touched_by_nobody(nbytes: int, border: int) -> tuple[Bytes, int]:
    """An array with so many bytes from a border on, and where that border is in it."""
    array = np.empty(nbytes + border, np.uint8)
    return array, -array.ctypes.data % border
