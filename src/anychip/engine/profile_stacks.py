"""Python stacks of all threads, sampled, as slices that lie one inside the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple


class OpenSlice(NamedTuple):
    """A function that is running in a thread, since when (monotonic seconds)."""

    code: CodeType
    begin: float


Close = Callable[[int, OpenSlice, float], None]
"""Takes thread id, slice and end of a function that has returned."""


class Stacks:
    """The stacks at the last look. close: told of each function when it is no longer there."""

    def __init__(self, close: Close) -> None:
        self._close = close
        self._open: dict[int, list[OpenSlice]] = {}
        self.names: dict[int, str] = {}

    def look(self, now: float) -> None:
        """Sample every thread but the calling one."""
        mine = threading.get_ident()
        self.names.update((t.ident, t.name) for t in threading.enumerate() if t.ident is not None)
        frames = sys._current_frames()  # noqa: SLF001 (Python's documented way to see other threads)
        for thread, frame in frames.items():
            if thread != mine:
                # One that was not made by `threading`, as a library's, has no name there.
                self.names.setdefault(thread, f"thread {thread}")
                self._settle(thread, list(_codes(frame)), now)
        for thread in self._open.keys() - frames.keys():
            self._settle(thread, [], now)

    def end(self, now: float) -> None:
        """Close what is open."""
        for thread in self._open:
            self._settle(thread, [], now)

    def _settle(self, thread: int, codes: list[CodeType], now: float) -> None:
        """Close what the stack no longer has, open what it has besides."""
        stack = self._open.setdefault(thread, [])
        same = 0
        while same < min(len(stack), len(codes)) and stack[same].code is codes[same]:
            same += 1
        for ended in reversed(stack[same:]):
            self._close(thread, ended, now)
        stack[same:] = [OpenSlice(code, now) for code in codes[same:]]


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """From the outermost function inwards."""
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return reversed(found)
