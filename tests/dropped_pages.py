"""Whether this machine makes major faults where a test needs some."""

from __future__ import annotations

import mmap
import os
import resource
import tempfile

import pytest


def major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def need_dropped_pages() -> None:
    """Skip the test where temporary files are not on a disk whose pages can be dropped."""
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 16 * mmap.PAGESIZE)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = major_faults()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            assert pages[8 * mmap.PAGESIZE] == ord("x")
    if major_faults() == before:
        pytest.skip(f"{tempfile.gettempdir()} is not on a disk whose pages can be dropped")
