"""How a run of the kit goes on, on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anychip.conform.proof import Level, Status
from anychip.conform.result import Listed, Result, Watcher

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET = (Status.PASS, Status.UNSUPPORTED)
LINE_EVERY_S = 10.0


@contextmanager
def progress() -> Iterator[Watcher]:
    """A watcher that shows what it hears."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.fields[level]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[check]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)


class Bar(Watcher):
    """The level, how much of it is done, and the check that runs."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=0, level="", check="")

    def level_begins(self, level: Level, checks: int) -> None:
        """Begin at 0 of them."""
        self._bar.reset(self._task, total=checks, level=level.value, check="")

    def check_begins(self, check: Listed) -> None:
        """Show it."""
        self._bar.update(self._task, check=check.key)

    def check_ended(self, result: Result) -> None:
        """Count it; a line above the bar where it is not in order."""
        self._bar.advance(self._task)
        if result.proof.status not in QUIET:
            self._bar.console.print(_line(result), markup=False, highlight=False, soft_wrap=True)


class Lines(Watcher):
    """A line for each level and each result that is not in order, one now and then between."""

    def __init__(self) -> None:
        self._done, self._count, self._told = 0, 0, time.monotonic()

    def level_begins(self, level: Level, checks: int) -> None:
        """A line with their number."""
        self._done, self._count = 0, checks
        self._say(f"{level.value}: {checks} to run")

    def check_begins(self, check: Listed) -> None:
        """A line where the last one was long ago."""
        if time.monotonic() - self._told > LINE_EVERY_S:
            self._say(f"{check.level.value}: {self._done} of {self._count} done, now {check.key}")

    def check_ended(self, result: Result) -> None:
        """A line where it is not in order."""
        self._done += 1
        if result.proof.status not in QUIET:
            self._say(_line(result))

    def _say(self, text: str) -> None:
        self._told = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def _line(result: Result) -> str:
    """Which check and how; the report at the end says what was seen."""
    return f"{result.proof.status.value} {result.key}"
