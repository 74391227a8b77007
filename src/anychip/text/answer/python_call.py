"""A call as Python writes it, `f(city="x", n=1)`: its arguments become JSON as they come."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from anychip.text.answer.cursor import Cursor, Steps
from anychip.text.answer.events import Sink
from anychip.text.answer.values import is_json, word

DEEPEST = 32
"""Lists and dictionaries inside of each other."""

_LONGEST_NUMBER = 300
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_CODES = {"x": 2, "u": 4, "U": 8}

Put = Callable[[str], None]


def python_call(cursor: Cursor, sink: Sink) -> Steps[bool]:
    """Read the call that begins here; it is one from its first keyword, or its closing bracket.

    False where it is none: nothing was put out. An argument that is no literal ends the call where
    it is; what follows is text.
    """
    name = yield from word(cursor)
    if name not in sink.names or not (yield from cursor.match("(")):
        return False
    yield from cursor.space()
    keyword = yield from _keyword(cursor)
    if keyword is None or (not keyword and (yield from cursor.char()) != ")"):
        return False
    cursor.forget()
    sink.call(name)
    sink.arguments("{")
    yield from _arguments(cursor, sink, keyword)
    return True


def _arguments(cursor: Cursor, sink: Sink, keyword: str | None) -> Steps[None]:
    while keyword:
        sink.arguments(_json(keyword) + ": ")
        if not (yield from _literal(cursor, sink.arguments, DEEPEST)):
            return
        yield from cursor.space()
        keyword = yield from _next_keyword(cursor)
        sink.arguments(", " if keyword else "")
    if (yield from cursor.char()) == ")":
        cursor.skip()
        sink.arguments("}")


def _next_keyword(cursor: Cursor) -> Steps[str]:
    """The keyword after the comma that comes here; "" where there is none, and what is read then
    is a comma before the end."""
    cursor.mark()
    if (yield from cursor.char()) == ",":
        cursor.skip()
        yield from cursor.space()
        keyword = yield from _keyword(cursor)
        if keyword is not None and (keyword or (yield from cursor.char()) == ")"):
            cursor.forget()
            return keyword
    cursor.rewind()
    return ""


def _keyword(cursor: Cursor) -> Steps[str | None]:
    """The keyword before the `=` that is read with it; "" where no word comes, None where it is
    no keyword."""
    name = yield from word(cursor)
    if not name:
        return ""
    yield from cursor.space()
    if not (yield from cursor.match("=")):
        return None
    yield from cursor.space()
    return name


def _literal(cursor: Cursor, put: Put, depth: int) -> Steps[bool]:
    """Put the JSON of the literal that begins here; False where there is none."""
    first = yield from cursor.char()
    if first and first in "\"'":
        return (yield from _string(cursor, put))
    if first and first in "[{":
        return depth > 0 and (yield from _items(cursor, put, depth - 1))
    cursor.mark()
    text = _scalar((yield from _number_or_word(cursor)))
    put(text)
    if text:
        cursor.forget()
    else:
        cursor.rewind()
    return bool(text)


def _items(cursor: Cursor, put: Put, depth: int) -> Steps[bool]:
    """A list or a dictionary."""
    opening = yield from cursor.char()
    closing = "]" if opening == "[" else "}"
    cursor.skip()
    put(opening)
    yield from cursor.space()
    separator = ""
    while (yield from cursor.char()) != closing:
        put(separator)
        if not (yield from _item(cursor, put, depth, keyed=closing == "}")):
            return False
        yield from cursor.space()
        separator = ", "
        if (yield from cursor.char()) == ",":
            cursor.skip()
            yield from cursor.space()
        elif (yield from cursor.char()) != closing:
            return False
    cursor.skip()
    put(closing)
    return True


def _item(cursor: Cursor, put: Put, depth: int, *, keyed: bool) -> Steps[bool]:
    if keyed:
        if not (yield from _string(cursor, put)):
            return False
        yield from cursor.space()
        if not (yield from cursor.match(":")):
            return False
        put(": ")
        yield from cursor.space()
    return (yield from _literal(cursor, put, depth))


def _string(cursor: Cursor, put: Put) -> Steps[bool]:
    quote = yield from cursor.char()
    if not quote or quote not in "\"'":
        return False
    cursor.skip()
    put('"')
    while (character := (yield from cursor.char())) != quote:
        if not character or character == "\n":
            return False
        cursor.skip()
        put(_inside((yield from _escaped(cursor)) if character == "\\" else character))
    cursor.skip()
    put('"')
    return True


def _escaped(cursor: Cursor) -> Steps[str]:
    """What the escape stands for whose backslash was read; Python's, octal numbers left out."""
    letter = yield from cursor.char()
    cursor.skip()
    if letter in _CODES:
        return (yield from _code(cursor, letter))
    if letter == "\n":
        return ""
    return _ESCAPES.get(letter) or (letter if letter in "\\'\"" else "\\" + letter)


def _code(cursor: Cursor, letter: str) -> Steps[str]:
    digits = ""
    while len(digits) < _CODES[letter]:
        character = yield from cursor.char()
        if not character or character not in "0123456789abcdefABCDEF":
            return "\\" + letter + digits
        cursor.skip()
        digits += character
    number = int(digits, 16)
    return chr(number) if number <= 0x10FFFF else "\\" + letter + digits


def _inside(text: str) -> str:
    """Characters as they stand inside of a JSON string; half of a pair is escaped."""
    whole = not any("\ud800" <= character <= "\udfff" for character in text)
    return json.dumps(text, ensure_ascii=not whole)[1:-1]


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number_or_word(cursor: Cursor) -> Steps[str]:
    read: list[str] = []
    while (character := (yield from cursor.char())) and (
        character.isalnum() or character in "+-._"
    ):
        cursor.skip()
        read.append(character)
    return "".join(read)


def _scalar(text: str) -> str:
    """JSON of a number, True, False or None (or of JSON's own words); "" for anything else."""
    if text in _WORDS:
        return _WORDS[text]
    if is_json(text) and text not in ("NaN", "Infinity", "-Infinity"):
        return text
    if len(text) > _LONGEST_NUMBER:
        return ""
    try:
        return str(int(text, 0))  # 1_000, 0x10
    except ValueError:
        return _float(text)


def _float(text: str) -> str:
    """JSON of what Python reads as a float and JSON does not, such as `.5`."""
    try:
        number = float(text)
    except ValueError:
        return ""
    return json.dumps(number) if math.isfinite(number) else ""
