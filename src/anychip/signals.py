"""SIGINT and SIGTERM of a process that serves: one handler, from its first line to its last.

Python's own raises KeyboardInterrupt wherever the program is. In the middle of an import that is a
traceback; in a callback it is lost, and the start goes on. This one asks, or ends the process, and
which of both changes while it stays in place: no moment is left to Python's, except its own start,
before the first line of ours, which no program can answer for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

React = Callable[[int], object]
"""What to do about a signal; takes its number, runs between two steps of the main thread."""

NUMBERS = (signal.SIGINT, signal.SIGTERM)

STOPPED = 0
"""Exit code of a server that ended because it was asked to, at whatever moment."""


class Ending:
    """The handler of both signals. react: what it does now; at first it ends the process.

    owner: whether the process is ours to end. Otherwise KeyboardInterrupt is raised in its stead.
    """

    def __init__(self, *, owner: bool = True) -> None:
        self.owner = owner
        self._leave: React = leave_start if owner else _interrupt
        self.react: React = self._leave
        self._interrupted = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Called by Python, in the main thread."""
        self.react(number)

    def finish(self, code: int) -> None:
        """From here on end the process at once: it is ending anyway, and has no child left."""
        self.react = (lambda number: os._exit(code)) if self.owner else _interrupt

    @contextmanager
    def unwinding(self) -> Iterator[None]:
        """For work that has a child or a file to clear away: the first signal raises
        KeyboardInterrupt in it, and the process ends when the block has been left."""
        try:
            try:
                self.react = self._interrupt_once
                yield
            finally:
                self.react = self._leave
        finally:
            if self._interrupted:
                self._leave(self._interrupted)

    def _interrupt_once(self, number: int) -> None:
        self._interrupted, self.react = number, lambda number: None
        _interrupt(number)


def take_signals() -> None:
    """Answer both signals from here on, for as long as this process lives. Main thread alone."""
    _install(Ending())


def let_go() -> None:
    """The last step of a process that took them: what Python does to end is not interrupted."""
    found = signal.getsignal(signal.SIGINT)
    if isinstance(found, Ending) and found.owner:
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)


def _install(ending: Ending) -> Ending:
    for number in NUMBERS:
        signal.signal(number, ending)
    return ending


def _interrupt(number: int) -> None:
    raise KeyboardInterrupt


@contextmanager
def answered() -> Iterator[Ending]:
    """The handler that the process began with; where it has none, one for this block alone."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    found = before[signal.SIGINT]
    if isinstance(found, Ending):
        yield found
        return
    try:
        yield _install(Ending(owner=False))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: its children are ended and its files taken away."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave_start(number: int) -> None:
    """End the process, which has not begun to serve, with one line. Its engine's process, which
    imports something at most, is ended by the kernel."""
    line = f"anychip: stopped by {signal.Signals(number).name} while starting\n"
    with suppress(OSError):  # standard error is closed: nobody to tell
        os.write(2, line.encode())
    os._exit(STOPPED)
