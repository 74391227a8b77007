"""Calls without markers of their own, at the beginning of an answer: Llama 3, pythonic."""

from __future__ import annotations

from anychip.text.answer.cursor import Cursor, Steps, until
from anychip.text.answer.events import Sink
from anychip.text.answer.json_call import json_call, skip_one_of
from anychip.text.answer.python_call import python_call

PYTHON_TAG = "<|python_tag|>"
PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"


def llama3(cursor: Cursor, sink: Sink) -> Steps[None]:
    """`{"name": ..., "parameters": {...}}`, several with `;` between them: at the beginning of the
    answer, or after `<|python_tag|>`."""
    yield from _leading_space(cursor, sink)
    yield from _json_calls(cursor, sink)
    while (yield from until(cursor, (PYTHON_TAG,), sink.text)):
        if not (yield from _json_calls(cursor, sink)):
            sink.text(PYTHON_TAG)


def pythonic(cursor: Cursor, sink: Sink) -> Steps[None]:
    """`[f(a=1), g(b="x")]` at the beginning of the answer or after `<|python_start|>`. JSON calls
    as Llama 3 writes them are read as well: a forced call is written so."""
    yield from _leading_space(cursor, sink)
    if not (yield from _json_calls(cursor, sink)):
        yield from _python_calls(cursor, sink)
    while (yield from until(cursor, (PYTHON_START,), sink.text)):
        if not (yield from _python_calls(cursor, sink)):
            sink.text(PYTHON_START)


def _leading_space(cursor: Cursor, sink: Sink) -> Steps[None]:
    while (character := (yield from cursor.char())).isspace():
        cursor.skip()
        sink.text(character)


def _json_calls(cursor: Cursor, sink: Sink) -> Steps[bool]:
    """Calls that follow here; False where there is none, and nothing is read then."""
    if not (yield from _json_call(cursor, sink)):
        return False
    while (yield from _json_call(cursor, sink, after=";")):
        pass
    return True


def _json_call(cursor: Cursor, sink: Sink, after: str = "") -> Steps[bool]:
    """Whether a call follows here; it is read then. after: what may stand before it."""
    cursor.mark()
    yield from cursor.space()
    if after and (yield from cursor.char()) == after:
        cursor.skip()
        yield from cursor.space()
    if (yield from json_call(cursor, sink, strict=True)):
        return True
    cursor.rewind()
    return False


def _python_calls(cursor: Cursor, sink: Sink) -> Steps[bool]:
    """The list of calls that follows here; False where there is none, and nothing is read then."""
    cursor.mark()
    yield from cursor.space()
    if not (yield from cursor.match("[")) or not (yield from python_call(cursor, sink)):
        cursor.rewind()
        return False
    while (yield from skip_one_of(cursor, ",")):
        cursor.mark()
        yield from cursor.space()
        if not (yield from python_call(cursor, sink)):
            cursor.rewind()
            sink.text(",")
            return True
    yield from skip_one_of(cursor, "]")
    yield from skip_one_of(cursor, PYTHON_END)
    return True
