"""JSON values in a text that streams, read character by character and kept as they are spelled."""

from __future__ import annotations

import json
import re

from anychip.text.answer.cursor import Cursor, Steps
from anychip.text.answer.events import Sink

_LOOSE = frozenset(" \t\r\n{}[]:,\"'+-._") | frozenset(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
"""Characters that may stand outside of strings. Any other ends a value that is broken."""


_NAME = re.compile(r"[\w.\-/:]")


class Extent:
    """Finds where an object or array ends that began with the first character given.

    It counts brackets and knows strings; it does not ask whether the rest is JSON.
    """

    def __init__(self) -> None:
        self.done = False
        self._depth = 0
        self._string = False
        self._escaped = False

    def find(self, text: str, at: int) -> int:
        """Where the value ends, or the text. `done` where it is the value."""
        for place in range(at, len(text)):
            if self._string:
                self._in_string(text[place])
            elif self._outside(text[place]):
                return place + (text[place] in "}]")
        return len(text)

    def _in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._string = False

    def _outside(self, character: str) -> bool:
        """Whether the value is over."""
        if character == '"':
            self._string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.done = self._depth == 0
        else:
            self.done = character not in _LOOSE
        return self.done


def stream_object(cursor: Cursor, sink: Sink) -> Steps[None]:
    """Put the object that begins here out as arguments, as it comes."""
    extent = Extent()
    while not extent.done and (yield from cursor.more()):
        sink.arguments(cursor.take_to(extent.find))


def value(cursor: Cursor) -> Steps[str]:
    """The text of the value that begins here; "" where it is broken or cut off."""
    character = yield from cursor.char()
    if character == '"':
        text = yield from raw_string(cursor)
    elif character and character in "{[":
        text = yield from _bracketed(cursor)
    else:
        text = yield from _scalar(cursor)
    return text if is_json(text) else ""


def string(cursor: Cursor) -> Steps[str | None]:
    """What the string that begins here stands for; None where there is none."""
    text = yield from raw_string(cursor)
    if not text or not is_json(text):
        return None
    found: str = json.loads(text)
    return found


def raw_string(cursor: Cursor) -> Steps[str]:
    """The string that begins here as it is spelled; "" where there is none, or no end of it."""
    if not (yield from cursor.match('"')):
        return ""
    read = ['"']
    while True:
        character = yield from cursor.char()
        if not character:
            return ""
        cursor.skip()
        read.append(character)
        if character == '"':
            return "".join(read)
        if character == "\\":
            read.append((yield from cursor.char()))
            cursor.skip()


def word(cursor: Cursor) -> Steps[str]:
    """The characters of a name that come here."""
    read: list[str] = []
    while (character := (yield from cursor.char())) and _NAME.fullmatch(character):
        cursor.skip()
        read.append(character)
    return "".join(read)


def _bracketed(cursor: Cursor) -> Steps[str]:
    read: list[str] = []
    extent = Extent()
    while not extent.done and (yield from cursor.more()):
        read.append(cursor.take_to(extent.find))
    return "".join(read) if extent.done else ""


def _scalar(cursor: Cursor) -> Steps[str]:
    read: list[str] = []
    while (character := (yield from cursor.char())) and (character.isalnum() or character in "+-."):
        cursor.skip()
        read.append(character)
    return "".join(read)


def is_json(text: str) -> bool:
    """Whether a text is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
