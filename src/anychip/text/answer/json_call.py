"""A call as a JSON object: `{"name": "f", "arguments": {...}}`."""

from __future__ import annotations

import json

from anychip.text.answer.cursor import Cursor, Steps
from anychip.text.answer.events import Sink
from anychip.text.answer.values import stream_object, string, value

ARGUMENTS = ("arguments", "parameters")
_KNOWN = frozenset({"name", "type", "id", *ARGUMENTS})


def json_call(cursor: Cursor, sink: Sink, *, strict: bool = False) -> Steps[bool]:
    """Read the object that begins here as a call.

    It is one from where its name, a tool's, and the beginning of its arguments are known; from
    there on the arguments are put out as they come, and the mark is gone. False where it is none:
    nothing was put out, and the caller may go back to its mark. strict: other members than those
    of a call make it none.
    """
    if not (yield from cursor.match("{")):
        return False
    name = arguments = None
    while (key := (yield from _key(cursor))) is not None and (key in _KNOWN or not strict):
        if key in ARGUMENTS and name is not None and (yield from cursor.char()) == "{":
            cursor.forget()
            sink.call(name)
            yield from stream_object(cursor, sink)
            yield from _rest_of_members(cursor)
            return True
        text = yield from value(cursor)
        name = _name(text, sink) if key == "name" else name
        arguments = text if key in ARGUMENTS else arguments
        if not text or (key == "name" and name is None):
            return False
        end = yield from _separator(cursor)
        if end != ",":
            return end == "}" and name is not None and _whole(cursor, sink, name, arguments)
    return False


def _key(cursor: Cursor) -> Steps[str | None]:
    """The next member's name, read up to its value."""
    yield from cursor.space()
    key = yield from string(cursor)
    yield from cursor.space()
    if key is None or not (yield from cursor.match(":")):
        return None
    yield from cursor.space()
    return key


def _separator(cursor: Cursor) -> Steps[str]:
    """The comma or brace after a member, read; anything else is told and stays."""
    yield from cursor.space()
    character = yield from cursor.char()
    if character and character in ",}":
        cursor.skip()
    return character


def _name(text: str, sink: Sink) -> str | None:
    found = json.loads(text) if text else None
    return found if isinstance(found, str) and found in sink.names else None


def _whole(cursor: Cursor, sink: Sink, name: str, text: str | None) -> bool:
    """Put out a call whose arguments came before its name, or as a text, or not at all."""
    found = json.loads(text) if text is not None else {}
    if isinstance(found, str):
        text = found
    elif not isinstance(found, dict) and found is not None:
        return False
    cursor.forget()
    sink.call(name)
    sink.arguments(text if found and text else "{}")
    return True


def _rest_of_members(cursor: Cursor) -> Steps[None]:
    """Read past what follows the arguments up to the end of the call; nothing where it is broken,
    which is then text."""
    cursor.mark()
    while (end := (yield from _separator(cursor))) == ",":
        if (yield from _key(cursor)) is None or not (yield from value(cursor)):
            break
    if end == "}":
        cursor.forget()
    else:
        cursor.rewind()


def skip_one_of(cursor: Cursor, *texts: str) -> Steps[str]:
    """Read past white space and the one of `texts` that follows, which is returned. Where none
    does, "" and nothing is read. They begin differently, or the longer comes first."""
    for text in texts:
        cursor.mark()
        yield from cursor.space()
        if (yield from cursor.match(text)):
            cursor.forget()
            return text
        cursor.rewind()
    return ""
