"""The screen and the keyboard of `anychip chat`; where one of both is none, plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from anychip.cli.chat_answers import ChatError
from anychip.cli.output import say

BLOCK = '"""'
"""Alone on a line: begins a message of several lines, and ends it."""

_KEPT = 1000
"""Lines of a history file."""

# A model's text must not steer the terminal: controls become pictures, but newline and tab.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}


class Terminal:
    """Reads messages, prints answers on standard output and everything else on standard error.

    interactive: a person sits at both ends. history: file that keeps what is typed, none: no file.
    """

    def __init__(self, history: Path | None = None, commands: Iterable[str] = ()) -> None:
        self._shown = sys.stdout is not None and sys.stdout.isatty()
        self.interactive = self._shown and sys.stdin is not None and sys.stdin.isatty()
        self._dims = _may_dim()
        self._editor = _line_editor(tuple(commands)) if self.interactive else None
        self._history = history if self.interactive else None
        if self._history is not None:
            self._remember(self._history)

    def read(self) -> str | None:
        """The next message; None at the end. Where nobody types, each line is one."""
        try:
            return self._typed() if self.interactive else _line()
        except UnicodeDecodeError as error:
            raise ChatError(f"standard input is not UTF-8: {error}") from error

    def write(self, text: str) -> None:
        """A piece of an answer. Raises OutputLost."""
        say(text.translate(_PICTURES) if self._shown else text, end="")

    def note(self, text: str) -> None:
        """A line beside the answers, dim where the terminal can."""
        self.aside(text + "\n")

    def aside(self, text: str) -> None:
        """A piece of text beside the answers."""
        if self._dims:
            text = f"\x1b[2m{text.translate(_PICTURES)}\x1b[0m"
        print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Keep the history, where that was asked for. Raises ChatError."""
        if self._history is None or self._editor is None:
            return
        count = self._editor.get_current_history_length()
        lines = [self._editor.get_history_item(number + 1) for number in range(count)]
        write_private(self._history, "".join(f"{line}\n" for line in lines[-_KEPT:] if line))

    def _remember(self, file: Path) -> None:
        if self._editor is None:
            raise ChatError("--history: this Python has no readline; leave it out")
        try:
            lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        except (OSError, UnicodeDecodeError) as error:
            raise ChatError(f"--history: cannot read {file}: {error}") from error
        for line in lines[-_KEPT:]:
            self._editor.add_history(line)

    def _typed(self) -> str | None:
        try:
            line = input("> ")
        except EOFError:
            say("")
            return None
        if line.strip() == BLOCK:
            return "\n".join(_until_block_ends())
        lines = [line]
        with suppress(EOFError):
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(input("... "))
        return "\n".join(lines)


def _until_block_ends() -> list[str]:
    lines: list[str] = []
    with suppress(EOFError):
        while (line := input("... ")).strip() != BLOCK:
            lines.append(line)
    return lines


def _line() -> str | None:
    line = sys.stdin.readline() if sys.stdin is not None else ""
    return line.rstrip("\n") if line else None


def _may_dim() -> bool:
    from rich.console import Console

    if sys.stderr is None or not sys.stderr.isatty():
        return False
    console = Console(stderr=True)  # it knows NO_COLOR and dumb terminals
    return not console.no_color and not console.is_dumb_terminal


def _line_editor(commands: tuple[str, ...]) -> ModuleType | None:
    """Arrow keys, and Tab for commands; None where Python was built without."""
    if find_spec("readline") is None:
        return None
    readline = import_module("readline")

    def complete(text: str, state: int) -> str | None:
        found = [name for name in commands if text.startswith("/") and name.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    other = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if other else "tab: complete")
    return readline


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read. Raises ChatError."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(number, "w", encoding="utf-8") as file:
            os.fchmod(number, 0o600)  # of one that was there
            file.write(text)
    except (OSError, UnicodeEncodeError) as error:
        raise ChatError(f"cannot write {path}: {error}") from error
