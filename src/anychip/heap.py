"""Memory that was freed, given back to the system.

The C library keeps what lies between pieces that are still in use, for the next one who asks it.
Python asks it for large objects alone, so after a large job outside of Python that may be never.
"""

from __future__ import annotations


def trim() -> None:
    """Give back whole pages that nobody uses. Nothing where the C library cannot: glibc can."""
    import ctypes  # noqa: PLC0415 (for a process that has something to give back)

    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(ctypes.c_size_t(0))
