"""gpt-oss: an answer is messages in channels, each with a header and an end.

The prompt ends with `<|start|>assistant`, so an answer begins inside of a header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from anychip.text.answer.cursor import Cursor, Steps, until
from anychip.text.answer.events import Sink

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)

_LONGEST_HEADER = 1024
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."


@dataclass(frozen=True)
class _Header:
    """channel: analysis, commentary, final. to: whom a message is for, "" for the user.

    text: all of it, its end included.
    """

    channel: str
    to: str
    text: str


def harmony(cursor: Cursor, sink: Sink, *, thoughts: bool = True) -> Steps[None]:
    """The analysis channel is thought, a message to an offered function is a call of it, what is
    for the user is text.

    A message to anybody else is text with its markers, and so is analysis where `thoughts` is
    False. What is no message is text.
    """
    marker = ""
    while True:
        if marker or (yield from _at_header(cursor)):
            header = yield from _header(cursor, sink, marker)
            marker = yield from _message(cursor, sink, header, thoughts) if header else _text(sink)
        if marker != START:
            marker = yield from until(cursor, (START, CHANNEL), sink.text)
        if not marker:
            return


def _at_header(cursor: Cursor) -> Steps[bool]:
    """Whether the answer begins with a header whose beginning the prompt holds."""
    cursor.mark()
    yield from cursor.space()
    found = (yield from cursor.char()) == "<" or (yield from cursor.match("to="))
    cursor.rewind()
    return found


class _Held:
    """A header's text; given to the sink once it is too long for one."""

    def __init__(self, sink: Sink, text: str) -> None:
        self._sink = sink
        self._parts = [text]
        self._left = _LONGEST_HEADER

    def add(self, text: str) -> None:
        """More of it."""
        self._parts.append(text)
        self._left -= len(text)
        if self._left < 0:
            self.release()

    def release(self) -> None:
        """It is none."""
        self._sink.text("".join(self._parts))
        self._parts.clear()

    @property
    def text(self) -> str:
        """All of it; "" where it was too long."""
        return "".join(self._parts) if self._left >= 0 else ""


def _header(cursor: Cursor, sink: Sink, begin: str) -> Steps[_Header | None]:
    """The header that goes on here after `begin`; None where it is none, and was put out."""
    held, marker = _Held(sink, begin), CHANNEL
    while marker in (CHANNEL, CONSTRAIN):
        marker = yield from until(cursor, MARKERS, held.add)
        held.add(marker)
    channel, to = _CHANNEL.search(held.text), _RECIPIENT.search(held.text)
    if marker == MESSAGE and channel:
        return _Header(channel[1], to[1] if to else "", held.text)
    held.release()
    return None


def _message(cursor: Cursor, sink: Sink, header: _Header, thoughts: bool) -> Steps[str]:
    """Put out a message's body; the marker that ended it."""
    name = header.to.removeprefix(_FUNCTIONS)
    analysis = header.channel == "analysis"
    put: Callable[[str], None] = sink.text
    raw = False
    if header.to.startswith(_FUNCTIONS) and name in sink.names:
        sink.call(name)
        put = sink.arguments
    elif analysis and thoughts:
        put = sink.thought
    else:
        raw = analysis or header.to not in ("", "user", "all")
    sink.text(header.text if raw else "")
    end = yield from until(cursor, (END, CALL, RETURN, START), put)
    if raw and end != START:
        sink.text(end)
    elif end:
        sink.markup()
    return end


def _text(sink: Sink) -> Steps[str]:
    """After a header that was none: nothing is known of what comes."""
    return ""
    yield
