"""Thought between `<think>` and `</think>`, before the answer."""

from __future__ import annotations

from anychip.text.answer.cursor import Cursor, Steps, until
from anychip.text.answer.events import Sink

THINK, THINK_END = "<think>", "</think>"


def thinking(cursor: Cursor, sink: Sink, *, inside: bool) -> Steps[None]:
    """Thought up to `</think>`, then text. inside: the answer begins within the thought, and a
    `<think>` that it begins with nevertheless is left out; otherwise only that begins one."""
    cursor.mark()
    yield from cursor.space()
    if (yield from cursor.match(THINK)):
        cursor.forget()
        inside = True
    else:
        cursor.rewind()
    if inside and (yield from until(cursor, (THINK_END,), sink.thought)):
        sink.markup()
    while (yield from cursor.more()):
        sink.text(cursor.rest())


def opened_by(prompt: str) -> bool | None:
    """Whether a prompt leaves the answer inside of a thought: True where it ends with `<think>`,
    False where it ends with `</think>`, None where it says neither."""
    end = prompt.rstrip()
    return end.endswith(THINK) or (False if end.endswith(THINK_END) else None)


def left_open(text: str) -> bool:
    """Whether the beginning of an answer, which is to be continued, stops inside of a thought."""
    return text.rfind(THINK) > text.rfind(THINK_END)
