"""The model of a command, fetched from its hub, with a progress bar, where it is not here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anychip.cli.demo import with_demo_model
from anychip.config import ServeConfig

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from anychip.model.hub.fetch import Watch


def with_model(config: ServeConfig) -> ServeConfig:
    """The same configuration with a model on this disk: the demo model where none is named.

    Raises ConfigError, DemoError, HubError.
    """
    from anychip.run.local_model import local_model

    if config.revision is None:
        config = with_demo_model(config)
    with _watch() as watch:
        return local_model(config, watch)


@contextmanager
def _watch() -> Iterator[Watch]:
    """A bar on a terminal, lines anywhere else; both on standard error."""
    from anychip.run.local_model import Lines

    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines(_say)
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Bar:
    """A progress bar with bytes, total and rate; drawn once there is something to show."""

    def __init__(self) -> None:
        self._drawn: Progress | None = None
        self._task: TaskID | None = None
        self._before, self._begun = 0, 0.0

    def progress(self, name: str, done: int, total: int) -> None:
        """Bytes that are here, and bytes in all."""
        if self._drawn is None or self._task is None:
            self._drawn = _drawn(name)
            self._drawn.start()
            self._task = self._drawn.add_task("fetch", total=total, rate="")
            self._before, self._begun = done, time.monotonic()
        seconds = max(time.monotonic() - self._begun, 1e-3)
        rate = f"{(done - self._before) / 1e6 / seconds:,.1f} MB/s"
        self._drawn.update(self._task, completed=done, total=total, rate=rate)

    def note(self, name: str, text: str) -> None:
        """Something that the user should know."""
        _say(f"{name}: {text}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._drawn is not None:
            self._drawn.stop()


def _drawn(name: str) -> Progress:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    return Progress(TextColumn(escape(name)), *columns, console=Console(stderr=True))
