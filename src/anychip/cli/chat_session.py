"""One conversation of `anychip chat`: messages, commands, and what is told after each answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from anychip.cli.chat_answers import ChatError, Messages, Said, Source
from anychip.cli.chat_terminal import Terminal, write_private
from anychip.refusal import nearest

COMMANDS: Mapping[str, str] = {
    "/help": "this list",
    "/reset": "forget the conversation; the system message stays",
    "/system": "TEXT: set the system message; without TEXT: remove it",
    "/params": "K=V ...: set fields of the request; K=: leave one out; alone: show them",
    "/regenerate": "answer the last message again",
    "/save": "FILE: write the conversation as JSON, readable by you alone",
    "/exit": "end, as Ctrl-D does",
}
NOTES = (
    'several lines: end a line with \\, or put them between lines of """',
    "Ctrl-C: stop the answer; what was said stays. //text: a message that begins with /",
)
OURS = ("messages", "stream", "stream_options", "n")
"""Fields that the chat itself sets."""

_NAME = re.compile(r"\s*([A-Za-z_]\w*)=")


def parameters(text: str) -> dict[str, Any]:
    """`K=V ...` as fields: V as JSON where it is some, else a word. K= alone: None.

    Raises ChatError.
    """
    found: dict[str, Any] = {}
    while text.strip():
        name = _NAME.match(text)
        if name is None:
            raise ChatError(f"{text.strip()!r} is not K=V, as in temperature=0.7")
        if name[1] in OURS:
            raise ChatError(f"{name[1]} is set by the chat itself")
        found[name[1]], text = _value(text[name.end() :])
    return found


def _value(text: str) -> tuple[Any, str]:
    """The value at the beginning, and the rest. JSON in quotes or brackets may have blanks."""
    if text[:1] in ('"', "[", "{"):
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError) as error:
            raise ChatError(f"{text} is not JSON: {error}") from error
        return value, text[end:]
    word = text.split(maxsplit=1)[0] if text[:1].strip() else ""
    return as_value(word), text[len(word) :]


def as_value(word: str) -> Any:
    """JSON where it is some, None where it is empty, else the word itself."""
    try:
        return json.loads(word) if word else None
    except (ValueError, RecursionError):
        return word


class Session:
    """Reads messages and commands until the end."""

    def __init__(
        self, source: Source, terminal: Terminal, system: str, params: dict[str, Any]
    ) -> None:
        self._source, self._terminal = source, terminal
        self._system, self.params = system, params
        self.messages: Messages = []
        self._saved: set[Path] = set()
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/help": self._help,
            "/reset": self._reset,
            "/system": self._set_system,
            "/params": self._set_params,
            "/regenerate": self._regenerate,
            "/save": self._save,
        }

    def run(self) -> None:
        """Until the end of the input or /exit.

        With nobody there who types, the first error ends it, as Ctrl-C does.
        """
        if self._terminal.interactive:
            self._terminal.note(f"{self._source.title}; /help lists the commands")
        while True:
            try:
                message = self._terminal.read()
                if message is None or message.strip() == "/exit":
                    return
                self._take(message)
            except KeyboardInterrupt:
                if not self._terminal.interactive:
                    raise
                self._terminal.note("\n(Ctrl-D or /exit ends)")
            except ChatError as error:
                if not self._terminal.interactive:
                    raise
                self._terminal.note(f"error: {error}")

    def _take(self, message: str) -> None:
        if message.startswith("//"):
            message = message[1:]
        elif message.startswith("/"):
            self._obey(message)
            return
        if message.strip():
            self._answer([*self.messages, {"role": "user", "content": message}])

    def _obey(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            close = nearest(name, COMMANDS)
            raise ChatError(f"there is no command {name}; the nearest is {close}")
        command(rest.strip())

    def _answer(self, messages: Messages) -> None:
        """Ask, print what comes, keep it. What failed, or was stopped before it began, is not."""
        figures = Figures()
        said: list[str] = []
        try:
            self._print(messages, figures, said)
        except KeyboardInterrupt:
            if not self._terminal.interactive:
                raise
            figures.stopped = True
        except ChatError:
            if said:
                self._terminal.write("\n")
            raise
        self._terminal.write("\n")
        self._terminal.note(figures.told)
        if said or not figures.stopped:
            self.messages = [*messages, {"role": "assistant", "content": "".join(said)}]

    def _print(self, messages: Messages, figures: Figures, said: list[str]) -> None:
        thinking = False
        with closing(self._source.answer(self._with_system(messages), self.params)) as answer:
            for piece in answer:
                figures.take(piece)
                if piece.thought and self._terminal.interactive:
                    thinking = True
                    self._terminal.aside(piece.thought)
                if piece.text:
                    if thinking:
                        thinking = False
                        self._terminal.aside("\n")
                    said.append(piece.text)
                    self._terminal.write(piece.text)

    def _with_system(self, messages: Messages) -> Messages:
        told = [{"role": "system", "content": self._system}] if self._system else []
        return [*told, *messages]

    def _help(self, rest: str) -> None:
        for name, text in COMMANDS.items():
            self._terminal.note(f"{name:12} {text}")
        for text in NOTES:
            self._terminal.note(text)

    def _reset(self, rest: str) -> None:
        self.messages = []
        self._terminal.note("a new conversation")

    def _set_system(self, text: str) -> None:
        self._system = text
        self._terminal.note("system message set" if text else "no system message")

    def _set_params(self, text: str) -> None:
        changed = {**self.params, **parameters(text)}
        self.params = {name: value for name, value in changed.items() if value is not None}
        shown = " ".join(f"{name}={json.dumps(value)}" for name, value in self.params.items())
        self._terminal.note(shown or "nothing is set: the defaults of the API hold")

    def _regenerate(self, rest: str) -> None:
        if not self.messages:
            raise ChatError("there is no message yet to answer again")
        self._answer(self.messages[:-1])

    def _save(self, name: str) -> None:
        if not name:
            raise ChatError("/save needs the name of a file")
        path = Path(name).expanduser()
        if path.exists() and path not in self._saved:
            raise ChatError(f"{path} is there already; name another file")
        document = {"messages": self._with_system(self.messages), "params": self.params}
        write_private(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        self._saved.add(path)
        self._terminal.note(f"saved {len(document['messages'])} messages in {path}")


class Figures:
    """How many tokens came how fast."""

    def __init__(self) -> None:
        self.stopped = False
        self._begun = time.monotonic()
        self._first = self._last = 0.0
        self._at_first = self._pieces = 0
        self._prompt: int | None = None
        self._tokens: int | None = None
        self._cached: int | None = None
        self._finish: str | None = None

    def take(self, said: Said) -> None:
        """Book a piece."""
        if said.text or said.thought:
            self._last = time.monotonic()
            if not self._first:  # what came before the clock ran is not counted in the rate
                self._first, self._at_first = self._last, said.completion_tokens or 1
            self._pieces += 1
        self._prompt = said.prompt_tokens if said.prompt_tokens is not None else self._prompt
        self._tokens = (
            said.completion_tokens if said.completion_tokens is not None else self._tokens
        )
        self._cached = said.cached_tokens if said.cached_tokens is not None else self._cached
        self._finish = said.finish or self._finish

    @property
    def told(self) -> str:
        """One line."""
        count = self._pieces if self._tokens is None else self._tokens
        words = [f"{count} tokens" if self._tokens is not None else f"{count} pieces"]
        if count > self._at_first and self._last > self._first:
            rate = (count - self._at_first) / (self._last - self._first)
            words.append(f"{rate:.1f} {words[0].split()[1]}/s")
        if self._first:
            words.append(f"first after {self._first - self._begun:.2f} s")
        if self._prompt is not None:
            found = "" if self._cached is None else f", {self._cached} of them cached"
            words.append(f"prompt {self._prompt} tokens{found}")
        if self.stopped or self._finish == "abort":
            words.append("stopped")
        elif self._finish == "length":
            words.append("cut at max_tokens or the context's end")
        return "(" + ", ".join(words) + ")"
