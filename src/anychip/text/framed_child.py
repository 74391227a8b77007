"""A child process that answers frames on its pipes, seen from its parent.

It ends when its input is closed, so it does not outlive a parent that crashes. The parent waits for
it a bounded time: one that is stopped, or stuck in the system, keeps no time of its own.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import IO

PATIENCE_S = 30.0
"""How long a child may take beyond the work that it bounds itself: to start, on a busy machine."""
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a child whatever it does: its end says nothing of its work."""
_MOST_AT_ONCE = 1 << 20

Child = subprocess.Popen[bytes]


class Unresponsive(Exception):
    """A child has neither answered nor ended in time; it has to be ended."""


def start_child(module: str) -> Child:
    """Start `python -m module`; does not wait for it."""
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # a terminal's Ctrl-C is the parent's to answer
    )
    for pipe in _pipes(child):
        os.set_blocking(pipe.fileno(), False)
    return child


def send(child: Child, frame: bytes, limit_s: float) -> bool:
    """Give it a frame; False where it has ended. Raises Unresponsive."""
    return _send(child, frame, time.monotonic() + limit_s)


def exchange(child: Child, frame: bytes, limit_s: float) -> bytes | None:
    """What it answers to a frame; None where it has ended. Raises Unresponsive."""
    deadline = time.monotonic() + limit_s
    if not _send(child, frame, deadline):
        return None
    head = _read(child, 4, deadline)
    return None if head is None else _read(child, int.from_bytes(head, "big"), deadline)


def end_child(child: Child) -> int:
    """Kill it, close its pipes and wait for it; its exit status, which may be an earlier end's."""
    child.kill()
    for pipe in _pipes(child):
        pipe.close()
    return child.wait()


def _send(child: Child, frame: bytes, deadline: float) -> bool:
    to = _pipes(child)[1].fileno()
    rest = memoryview(len(frame).to_bytes(4, "big") + frame)
    while rest:
        try:
            rest = rest[os.write(to, rest) :]
        except BlockingIOError:
            _wait(to, select.POLLOUT, deadline)
        except BrokenPipeError:
            return False
    return True


def _read(child: Child, size: int, deadline: float) -> bytes | None:
    """So many bytes of its output; None where it ends before."""
    source, got = _pipes(child)[0].fileno(), bytearray()
    while len(got) < size:
        _wait(source, select.POLLIN, deadline)
        piece = os.read(source, min(size - len(got), _MOST_AT_ONCE))
        if not piece:
            return None
        got += piece
    return bytes(got)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise Unresponsive


def _pipes(child: Child) -> tuple[IO[bytes], IO[bytes]]:
    """Its output to read from and its input to write to."""
    if child.stdout is None or child.stdin is None:
        raise RuntimeError("a child that answers frames was started without pipes")
    return child.stdout, child.stdin
