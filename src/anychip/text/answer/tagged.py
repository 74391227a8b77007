"""Calls between markers: Hermes and Qwen, Mistral, DeepSeek."""

from __future__ import annotations

from anychip.text.answer.cursor import Cursor, Steps, until
from anychip.text.answer.events import Sink
from anychip.text.answer.json_call import json_call, skip_one_of
from anychip.text.answer.values import stream_object, word

HERMES_BEGIN, HERMES_END = "<tool_call>", "</tool_call>"
MISTRAL_BEGIN, MISTRAL_ID, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
CALL_SEPARATOR = "<｜tool▁sep｜>"


def hermes(cursor: Cursor, sink: Sink) -> Steps[None]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as often as it comes. Several
    objects between two markers are several calls; a missing end marker is forgiven."""
    while (yield from until(cursor, (HERMES_BEGIN,), sink.text)):
        cursor.mark()
        yield from cursor.space()
        if not (yield from json_call(cursor, sink)):
            cursor.rewind()
            sink.text(HERMES_BEGIN)
            continue
        while (yield from _next_object(cursor, sink)):
            pass
        yield from skip_one_of(cursor, HERMES_END)


def _next_object(cursor: Cursor, sink: Sink) -> Steps[bool]:
    """Whether another call follows directly; it is read then."""
    cursor.mark()
    yield from cursor.space()
    found = yield from json_call(cursor, sink)
    if not found:
        cursor.rewind()
    return found


def mistral(cursor: Cursor, sink: Sink) -> Steps[None]:
    """`[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, or
    `[TOOL_CALLS]name[ARGS]{...}` as often as it comes, with `[CALL_ID]...` before `[ARGS]`."""
    while (yield from until(cursor, (MISTRAL_BEGIN,), sink.text)):
        cursor.mark()
        yield from cursor.space()
        if (yield from cursor.char()) == "[":
            found = yield from _array(cursor, sink)
        else:
            found = yield from _named(cursor, sink)
        if not found:
            cursor.rewind()
            sink.text(MISTRAL_BEGIN)


def _array(cursor: Cursor, sink: Sink) -> Steps[bool]:
    cursor.skip()
    yield from cursor.space()
    if not (yield from json_call(cursor, sink)):
        return False
    while (yield from skip_one_of(cursor, ",")):
        if not (yield from _next_object(cursor, sink)):
            sink.text(",")
            return True
    yield from skip_one_of(cursor, "]")
    return True


def _named(cursor: Cursor, sink: Sink) -> Steps[bool]:
    name = yield from word(cursor)
    if name not in sink.names:
        return False
    marker = yield from _bracketed_word(cursor)
    if marker == MISTRAL_ID:
        yield from word(cursor)
        marker = yield from _bracketed_word(cursor)
    return marker in ("", MISTRAL_ARGUMENTS) and (yield from _arguments(cursor, sink, name))


def _bracketed_word(cursor: Cursor) -> Steps[str]:
    """The `[WORD]` that comes next, read; "" where something else does."""
    if (yield from cursor.char()) != "[":
        return ""
    cursor.skip()
    inside = yield from word(cursor)
    return f"[{inside}]" if (yield from cursor.match("]")) else "["


def _arguments(cursor: Cursor, sink: Sink, name: str) -> Steps[bool]:
    """The object that is the arguments; it makes the call one."""
    yield from cursor.space()
    if (yield from cursor.char()) != "{":
        return False
    cursor.forget()
    sink.call(name)
    yield from stream_object(cursor, sink)
    return True


def deepseek(cursor: Cursor, sink: Sink) -> Steps[None]:
    """DeepSeek's markers. V3 and R1: `function`, separator, name, arguments in a fenced block;
    V3.1: name, separator, arguments."""
    while marker := (yield from until(cursor, (CALLS_BEGIN, CALL_BEGIN), sink.text)):
        cursor.mark()
        begun = marker == CALL_BEGIN
        if not begun:
            yield from cursor.space()
            begun = yield from cursor.match(CALL_BEGIN)
        if not begun or not (yield from _deepseek_call(cursor, sink)):
            cursor.rewind()
            sink.text(marker)
            continue
        yield from skip_one_of(cursor, "```")
        yield from skip_one_of(cursor, CALL_END)
        yield from skip_one_of(cursor, CALLS_END)


def _deepseek_call(cursor: Cursor, sink: Sink) -> Steps[bool]:
    kind = (yield from word(cursor)).strip()
    if not (yield from cursor.match(CALL_SEPARATOR)):
        return False
    yield from cursor.space()
    name = kind
    if (yield from cursor.char()) != "{":
        name = yield from word(cursor)
        yield from cursor.space()
        if (yield from cursor.match("```")):
            yield from word(cursor)
    if name not in sink.names:
        return False
    return (yield from _arguments(cursor, sink, name))
