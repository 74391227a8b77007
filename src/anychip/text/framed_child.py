"""A child process that answers frames on its pipes, seen from its parent.

It ends when its input is closed, so it does not outlive a parent that crashes.
"""

from __future__ import annotations

import subprocess
import sys
from typing import IO

from anychip.text.frames import read_frame, write_frame

Child = subprocess.Popen[bytes]


def start_child(module: str) -> Child:
    """Start `python -m module`; does not wait for it."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a terminal's Ctrl-C is the parent's to answer
    )


def send(child: Child, frame: bytes) -> bool:
    """Give it a frame; False where it has ended."""
    try:
        write_frame(_pipes(child)[1], frame)
    except BrokenPipeError:
        return False
    return True


def exchange(child: Child, frame: bytes) -> bytes | None:
    """What it answers to a frame; None where it has ended."""
    return read_frame(_pipes(child)[0]) if send(child, frame) else None


def end_child(child: Child) -> int:
    """Kill it, close its pipes and wait for it; its exit status, which may be an earlier end's."""
    child.kill()
    for pipe in _pipes(child):
        try:
            pipe.close()
        except BrokenPipeError:
            continue  # the unsent rest of a frame; its reader is gone
    return child.wait()


def _pipes(child: Child) -> tuple[IO[bytes], IO[bytes]]:
    """Its output to read from and its input to write to."""
    if child.stdout is None or child.stdin is None:
        raise RuntimeError("a child that answers frames was started without pipes")
    return child.stdout, child.stdin
