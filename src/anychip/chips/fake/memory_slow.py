"""Slowness on demand: a pool with coarse blocks, and device memory whose pages lie on a disk."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import replace

from anychip.chips.fake.memory import FakeMemory, block_bytes
from anychip.contract.memory import MemoryInfo, PoolStatistics


class CoarseMemory(FakeMemory):
    """Memory that comes in coarse blocks; it tells what they waste."""

    def info(self) -> MemoryInfo:
        """The largest allocation is the largest block that fits."""
        whole = super().info()
        block = largest = 0
        while (block := block_bytes(block + 1, self._store.step)) <= whole.free:
            largest = block
        return replace(whole, largest=largest)

    def statistics(self) -> PoolStatistics:
        """Nothing waits for reuse: a block that is given back is gone."""
        used, asked = self._store.used, self._store.asked
        return PoolStatistics(used, 0, asked, 1 - asked / used if used else 0.0)


class HostBacking:
    """Pages of a file that stand for device memory which the host keeps on a disk.

    Each `touch` reads them after the kernel was told to drop them: real major faults, where the
    folder of temporary files is on a disk. pages: 0 for none.
    """

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._file = self._map = None
        if pages:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the chip)
            self._file.write(os.urandom(mmap.PAGESIZE) * pages)
            self._file.flush()
            os.fsync(self._file.fileno())  # pages that are not written yet cannot be dropped
            self._map = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
            self._map.madvise(mmap.MADV_RANDOM)  # or one fault would bring in the next pages too

    def touch(self) -> int:
        """Drop all pages, then read a byte of each; returns their sum."""
        if self._map is None or self._file is None:
            return 0
        self._map.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return sum(self._map[page * mmap.PAGESIZE] for page in range(self._pages))

    def close(self) -> None:
        """Give the file back."""
        if self._map is not None and self._file is not None:
            self._map.close()
            self._file.close()
            self._map = self._file = None
