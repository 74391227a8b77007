"""Slowness on demand: a lock that each launch takes and that a thread of the chip mostly holds."""

from __future__ import annotations

import threading

GAP = 0.01
"""Share of the holding time for which the lock is free in between."""


class BusyLock:
    """What a plugin with one global lock is like. hold_s: seconds at a time; 0: no lock."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        if hold_s > 0:
            self._thread = threading.Thread(target=self._hold, name="chip-lock", daemon=True)
            self._thread.start()

    def _hold(self) -> None:
        while not self._closing.wait(self._hold_s * GAP):
            with self._lock:
                self._closing.wait(self._hold_s)

    def passed(self) -> None:
        """Wait until the lock is free, take it and give it back."""
        if self._thread is not None:
            with self._lock:
                pass

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
