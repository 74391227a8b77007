"""How `anychip regress` goes on, on standard error: a bar on a terminal, some lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from anychip.bench.regress import Watcher
    from anychip.bench.regress_judge import Outcome

EVERY = 10
"""Cases for a line that says how far it is."""


@contextmanager
def progress() -> Iterator[Watcher]:
    """A watcher that shows what it hears."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    case = TextColumn("{task.fields[key]}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), case)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)


class Bar:
    """How much is done, and the case that runs; a line for each that is worse."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None, key="")

    def begins(self, text: str, cases: int) -> None:
        """The head line stays above the bar."""
        self._bar.reset(self._task, total=cases, key="")
        self._say(text)

    def case_begins(self, key: str) -> None:
        """Its name stands beside the bar."""
        self._bar.update(self._task, key=key)

    def case_ended(self, outcome: Outcome) -> None:
        """One more is done."""
        self._bar.advance(self._task)
        if not outcome.ok:
            self._say(_line(outcome))

    def _say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """A line for each case that is worse, and one for every tenth: how far, and how long yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds."""
        self._done, self._count = 0, 0
        self._clock, self._begun = clock, 0.0

    def begins(self, text: str, cases: int) -> None:
        """The head line."""
        self._done, self._count = 0, cases
        self._begun = self._clock()
        self._say(text)

    def case_begins(self, key: str) -> None:
        """Nothing: it is told when it has ended, if at all."""

    def case_ended(self, outcome: Outcome) -> None:
        """One more is done."""
        self._done += 1
        if not outcome.ok:
            self._say(_line(outcome))
        if self._done % EVERY == 0:
            self._say(f"{self._done} of {self._count} done{self._left()}")

    def _left(self) -> str:
        """The rest, if it goes on as it did."""
        left = self._count - self._done
        seconds = (self._clock() - self._begun) / self._done * left
        return f", about {math.ceil(seconds)} s left" if left else ""

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _line(outcome: Outcome) -> str:
    return f"{outcome.key} is worse: {'; '.join(outcome.failed)}"
