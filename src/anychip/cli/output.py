"""What a command prints for its user: all of it arrives, or the command says that it did not."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.flags import ConfigError
from anychip.settings import user_path

if TYPE_CHECKING:
    from rich.console import Console


class OutputLost(Exception):
    """Standard output takes no more. quiet: because its reader has left, as `| head` does."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror}")
        self.quiet = isinstance(error, BrokenPipeError)


def say(text: str, end: str = "\n") -> None:
    """Print at once. Raises OutputLost."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        raise _lost(error) from error


def report_folder(text: str) -> Path:
    """The folder of --output, made and tried before a long load and not after it.

    Raises ConfigError where nothing can be written there.
    """
    folder = user_path(text, "--output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"--output: cannot write to {folder}: {error.strerror}; name a folder that this user "
            "may write to"
        ) from error
    return folder


@contextmanager
def drawing(width: int = 80) -> Iterator[Console]:
    """A console whose drawing is printed when it is complete. Raises OutputLost.

    width: columns where no terminal shows it and COLUMNS is not set.
    """
    from rich.console import Console

    drawn, shown = io.StringIO(), sys.stdout is not None and sys.stdout.isatty()
    columns = None if shown else shutil.get_terminal_size((width, 24)).columns
    yield Console(file=drawn, force_terminal=shown, width=columns)
    say(drawn.getvalue(), end="")


def flush() -> None:
    """Hand over what others printed, as argparse does its help. Raises OutputLost."""
    try:
        if sys.stdout is not None:  # None where the file was closed before we began
            sys.stdout.flush()
    except OSError as error:
        raise _lost(error) from error


def _lost(error: OSError) -> OutputLost:
    """The same in words; what is still held goes nowhere, or it would fail again at the exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return OutputLost(error)


def tell(error: Exception) -> int:
    """One line on standard error; the exit code for it."""
    if isinstance(error, OutputLost) and error.quiet:
        return 128 + signal.SIGPIPE
    print(f"anychip: error: {error}", file=sys.stderr)
    return 2 if isinstance(error, ConfigError) else 1
