"""Lines of the log that are soon out of date, as how much of a model is loaded."""

from __future__ import annotations

import logging
import shutil
import time
from typing import TextIO

EVERY_S = 5.0
"""How often such a line is told where no terminal shows the log, seconds."""

LOGGER = "anychip.engine.passing"
"""Who tells them, so that a command may show them alone."""

_ERASE = "\r\x1b[K"


class Passing(str):
    """A line that the next one replaces where that is possible. Empty: nothing more is shown."""

    __slots__ = ()


class LogWriter(logging.StreamHandler[TextIO]):
    """Writes the log to standard error; on a terminal a `Passing` line is written over, unless
    lines are for a machine to read."""

    def __init__(self, *, for_machines: bool = False) -> None:
        super().__init__()
        self._for_machines = for_machines
        self._shown = False
        self._told: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; one that cannot be written is told as logging does."""
        passing = isinstance(record.msg, Passing)
        if self.stream.isatty() and not self._for_machines:
            self._on_terminal(record, passing=passing)
        elif not passing or (record.msg and self._is_due()):
            super().emit(record)

    def _is_due(self) -> bool:
        """Whether a passing line goes to a file; the first starts the clock."""
        now = time.monotonic()
        if self._told is None:
            self._told = now
        due = now - self._told >= EVERY_S
        if due:
            self._told = now
        return due

    def _on_terminal(self, record: logging.LogRecord, *, passing: bool) -> None:
        if self._shown:
            self.stream.write(_ERASE)
        self._shown = passing and bool(record.msg)
        if not passing:
            super().emit(record)
            return
        if self._shown:  # a line that wraps could not be written over
            columns = shutil.get_terminal_size().columns
            self.stream.write(record.msg[: columns - 1])
        self.stream.flush()
