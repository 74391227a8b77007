"""What emulated tiles were asked for: kernels/tiles_emulated.h counts."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple


class TileCounts(NamedTuple):
    """Instructions, in the order of the header's `Counted`."""

    configurations: int
    zeros: int
    loads: int
    passing_loads: int
    """Loads that keep what they read out of the first cache (TILELOADDT1)."""
    stores: int
    products: int

    def __sub__(self, before: TileCounts) -> TileCounts:
        return TileCounts(*(now - then for now, then in zip(self, before, strict=True)))


def tile_counts(library: Path) -> TileCounts:
    """Of the calling thread, since it began; threads of a pool count for themselves, so open the
    chip with one. Raises AttributeError for a library whose tiles are real or none."""
    read = ctypes.CDLL(str(library)).anychip_tile_counts
    read.restype = ctypes.c_int64
    counts = (ctypes.c_int64 * len(TileCounts._fields))()
    if read(counts) != len(counts):
        raise ValueError(f"{library} counts other things than {', '.join(TileCounts._fields)}")
    return TileCounts(*counts)
