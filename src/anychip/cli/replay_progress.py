"""How a replay goes on, on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anychip.bench.load.calls import Answer, Call
from anychip.bench.load.replay import Watcher, Wish, time_left

if TYPE_CHECKING:
    from rich.progress import Progress as Columns

LINE_EVERY_S = 10.0


@contextmanager
def progress() -> Iterator[Progress]:
    """A watcher that shows what it hears."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Progress(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Columns

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}", markup=False))
    with Columns(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Progress(bar)


class Progress(Watcher):
    """How many are answered, how many failed, and the time left."""

    def __init__(self, bar: Columns | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None, told="")
        self._calls: Sequence[Call] = ()
        self._wish: Wish | None = None
        self._done = self._failed = 0
        self._start = self._told = time.monotonic()

    def begins(self, calls: Sequence[Call], wish: Wish, notes: Sequence[str]) -> None:
        """Tell how many there are, and the notes."""
        self._calls, self._wish = calls, wish
        self._start = self._told = time.monotonic()
        for note in notes:
            self._say(note)
        self._say(f"{len(calls)} requests; {self._left()}")

    def answered(self, answer: Answer) -> None:
        """Count it; without a bar a line now and then."""
        self._done += 1
        self._failed += answer.failure is not None
        if self._bar is not None and self._task is not None:
            told = f"{self._failed} failed, {self._left()}"
            self._bar.update(self._task, completed=self._done, total=len(self._calls), told=told)
        elif time.monotonic() - self._told > LINE_EVERY_S:
            told = f"{self._done} of {len(self._calls)} ended, {self._failed} failed"
            self._say(f"{told}, {self._left()}")

    def _left(self) -> str:
        if self._wish is None:
            return ""
        now = time.monotonic() - self._start
        left = time_left(self._calls, self._wish, self._done, now)
        what = "to send" if self._wish.closed is None else "left"
        return f"about {left:,.0f} s {what}" if left == left else "time left not known yet"

    def _say(self, text: str) -> None:
        self._told = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)
