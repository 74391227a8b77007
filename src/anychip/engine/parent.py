"""A process of ours that does not outlive the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; elsewhere the socket's end does.

    parent: its process id; SystemExit where it has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)
