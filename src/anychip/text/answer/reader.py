"""Reads an answer as it streams: reasoning first, then calls, in the formats asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from anychip.text.answer.cursor import Cursor
from anychip.text.answer.events import Event, Sink, Text, Thought
from anychip.text.answer.formats import REASONING_MARKERS, TOOL_FORMATS, Read
from anychip.text.answer.harmony import harmony
from anychip.text.answer.thinking import thinking


@dataclass(frozen=True)
class AnswerFormat:
    """How an answer is to be read.

    tools: a name of `TOOL_FORMATS`, "" where no calls are read; names: the tools that may be
    called. reasoning: a name of `REASONING_MARKERS`, "" where thought stays in the text.
    inside: whether the prompt opened a thought; None: as the format has it. See `opened_by`.
    stream_thoughts: False tells a thought at once, when it is over.
    """

    tools: str = ""
    names: Collection[str] = ()
    reasoning: str = ""
    inside: bool | None = None
    stream_thoughts: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of special tokens that must be seen where `skip_special_tokens` is on."""
        tools = TOOL_FORMATS[self.tools].markers if self.tools else ()
        return (*tools, *REASONING_MARKERS.get(self.reasoning, ()))


class AnswerReader:
    """The events of one answer. The same text gives the same events, however it is cut."""

    def __init__(self, form: AnswerFormat, new_id: Callable[[], str] | None = None) -> None:
        made = TOOL_FORMATS[form.tools].new_id if form.tools else _no_id
        sink = Sink(form.names if form.tools else (), new_id or made)
        self._stages = [_Stage(read, sink_) for read, sink_ in _stages(form, sink)]
        self._thoughts: list[str] | None = None if form.stream_thoughts else []

    def feed(self, delta: str) -> list[Event]:
        """What more text tells."""
        return self._gather(self._through([Text(delta)] if delta else [], 0))

    def flush(self) -> list[Event]:
        """What was kept back, now that no text follows."""
        events: list[Event] = []
        for place, stage in enumerate(self._stages):
            events.extend(self._through(stage.flush(), place + 1))
        return self._gather(events, over=True)

    def _through(self, events: list[Event], place: int) -> list[Event]:
        """Let the stages from `place` on read the text among events."""
        for stage in self._stages[place:]:
            told: list[Event] = []
            for event in events:
                told.extend(stage.feed(event.text) if isinstance(event, Text) else (event,))
            events = told
        return events

    def _gather(self, events: list[Event], *, over: bool = False) -> list[Event]:
        """Keep thoughts together where they are not to be streamed."""
        if self._thoughts is None:
            return events
        told: list[Event] = []
        for event in events:
            if isinstance(event, Thought):
                self._thoughts.append(event.text)
            else:
                told.extend((*self._whole_thought(), event))
        return [*told, *self._whole_thought()] if over else told

    def _whole_thought(self) -> list[Event]:
        whole, self._thoughts = "".join(self._thoughts or ()), []
        return [Thought(whole)] if whole else []


class _Stage:
    """One reader and where it puts what it reads."""

    def __init__(self, read: Read, sink: Sink) -> None:
        self._sink = sink
        self._cursor = Cursor()
        self._steps = read(self._cursor, sink)

    def feed(self, delta: str) -> list[Event]:
        self._cursor.put(delta)
        next(self._steps)  # it ends with the text, not before
        return self._sink.take()

    def flush(self) -> list[Event]:
        self._cursor.ended = True
        next(self._steps, None)
        self._sink.end()
        return self._sink.take()


def _stages(form: AnswerFormat, sink: Sink) -> list[tuple[Read, Sink]]:
    """Who reads first; gpt-oss has one reader for both."""
    if "gpt-oss" in (form.tools, form.reasoning):
        return [(partial(harmony, thoughts=form.reasoning == "gpt-oss"), sink)]
    stages: list[tuple[Read, Sink]] = []
    if form.reasoning:
        inside = form.reasoning == "deepseek-r1" if form.inside is None else form.inside
        stages.append((partial(thinking, inside=inside), Sink((), _no_id)))
    if form.tools:
        stages.append((TOOL_FORMATS[form.tools].read, sink))
    return stages


def _no_id() -> str:
    raise RuntimeError("a reader without tools began a call")
