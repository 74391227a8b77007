"""What each thread of this process waits for in the kernel, read with the interpreter held.

The interpreter's lock is kept during a reading, so no other thread runs Python meanwhile: one that
is said to run is in native code, and one that wants the interpreter waits for its lock, whose
place in memory is found by letting a thread wait for it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

RUNNING, WANTS_INTERPRETER, FUTEX, BLOCKED, SYSCALL = "running", "wants", "futex", "blocked", "call"
ASLEEP = "asleep"
"""Waits, and the kernel does not tell for what."""

_FUTEX_CALLS = {"x86_64": (202, 449, 455), "aarch64": (98, 449, 455)}
"""Numbers of futex, futex_waitv and futex_wait."""
_NEAR_BYTES = 256
"""The interpreter's lock is several words, which lie together; other locks are not near them."""
_TRIES, _ENOUGH = 500, 3
_LOOKS_AGAIN, _PAUSE_US = 2, 60
"""Between two looks at a thread the interpreter is held, for these microseconds."""


class ThreadStates:
    """Reads threads' states. Close it: it holds a file for each thread that it has seen."""

    def __init__(self) -> None:
        self._read = ctypes.PyDLL(None).pread  # PyDLL: a call keeps the interpreter
        self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
        self._sleep = ctypes.PyDLL(None).usleep
        self._buffer = ctypes.create_string_buffer(512)
        self._files: dict[int, int | None] = {}
        self._futex_calls = _FUTEX_CALLS.get(platform.machine(), ())
        self.told = self._can_tell()
        """Whether the kernel tells what a thread waits for."""
        self._interpreter = self._find_interpreter() if self.told else None

    def add(self, tid: int) -> None:
        """Know a thread; lets the interpreter go for a moment."""
        if tid not in self._files:
            self._files[tid] = self._open(tid)

    def of_all(self, tids: Collection[int]) -> dict[int, str]:
        """States of threads that were added; ASLEEP for one that has ended.

        Who had the interpreter before us may still be on its way to wait for it, and on a busy
        machine without a core to get there: those that run are looked at again.
        """
        states = {tid: self._of(tid) for tid in tids}
        for _ in range(_LOOKS_AGAIN):
            running = [tid for tid, state in states.items() if state == RUNNING]
            if not running:
                break
            self._sleep(_PAUSE_US)
            states.update((tid, self._of(tid)) for tid in running)
        return states

    def _of(self, tid: int) -> str:
        descriptor = self._files.get(tid)
        if descriptor is None:
            return ASLEEP
        length = self._read(descriptor, self._buffer, len(self._buffer), 0)
        if length <= 0:
            return ASLEEP
        text = self._buffer.raw[:length]
        return self._state(text) if self.told else _letter_state(text)

    def _state(self, text: bytes) -> str:
        """From "running", "-1 SP PC", or "NUMBER ARG0 ... SP PC"."""
        words = text.split()
        if words[0] == b"running":
            return RUNNING
        number = int(words[0])
        if number < 0:
            return BLOCKED  # waits, but in no call: for a page of its memory
        if number not in self._futex_calls:
            return SYSCALL
        wants = self._interpreter is not None and (
            abs(int(words[1], 16) - self._interpreter) < _NEAR_BYTES
        )
        return WANTS_INTERPRETER if wants else FUTEX

    def close(self) -> None:
        """Close every file."""
        for descriptor in self._files.values():
            if descriptor is not None:
                os.close(descriptor)
        self._files.clear()

    def _can_tell(self) -> bool:
        own = threading.get_native_id()
        try:
            with open(f"/proc/self/task/{own}/syscall", "rb") as file:
                return bool(self._futex_calls) and bool(file.read(8))
        except OSError:
            return False

    def _open(self, tid: int) -> int | None:
        name = "syscall" if self.told else "stat"
        with suppress(OSError):  # it has ended
            return os.open(f"/proc/self/task/{tid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _find_interpreter(self) -> int | None:
        """Where threads wait that want the interpreter: as seen of one that always wants it."""
        ended = threading.Event()
        thread = threading.Thread(target=_spin, args=(ended,), name="wants", daemon=True)
        thread.start()
        try:
            assert thread.native_id is not None
            self.add(thread.native_id)
            return self._common_futex(thread.native_id)
        finally:
            ended.set()
            thread.join()
            descriptor = self._files.pop(thread.native_id or 0, None)
            if descriptor is not None:
                os.close(descriptor)

    def _common_futex(self, tid: int) -> int | None:
        seen: Counter[int] = Counter()
        descriptor = self._files[tid]
        for _ in range(_TRIES):
            length = self._read(descriptor, self._buffer, len(self._buffer), 0)
            words = self._buffer.raw[: max(length, 0)].split()
            if len(words) > 1 and words[0].isdigit() and int(words[0]) in self._futex_calls:
                word = int(words[1], 16)
                seen[word] += 1
                if seen[word] >= _ENOUGH:
                    return word
            self._sleep(_PAUSE_US)
        return None


def _spin(ended: threading.Event) -> None:
    while not ended.is_set():
        pass


def _letter_state(text: bytes) -> str:
    """From the letter of /proc/.../stat, where there is nothing better."""
    letter = text.rpartition(b")")[2].split()[0]
    return RUNNING if letter == b"R" else ASLEEP
