"""How answers are read here: the formats of tool calls and of reasoning, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.server.chat_events import (
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.text.answer.events import CallArguments, CallStart, Event, Text
from anychip.text.answer.formats import reasoning_format_of, tool_format_of
from anychip.text.answer.reader import AnswerFormat, AnswerReader

_BOTH = "gpt-oss"
"""The format whose tool calls and reasoning are read by one reader."""


class AnswerFormats(msgspec.Struct, frozen=True, kw_only=True):
    """Names of `text.answer.formats`; "" where calls, or reasoning, are not read."""

    tools: str = ""
    reasoning: str = ""


def formats_of(config: ServeConfig, template: str | None) -> AnswerFormats:
    """The formats that the flags name, or that the chat template writes.

    StartError where two are named that cannot be read together.
    """
    tools, reasoning = config.tool_call_parser, config.reasoning_parser
    tools = (tool_format_of(template) or "none") if tools == "auto" else tools
    reasoning = (reasoning_format_of(template) or "none") if reasoning == "auto" else reasoning
    if _BOTH in (tools, reasoning) and {tools, reasoning} - {_BOTH, "none"}:
        raise StartError(
            f"--tool-call-parser {tools} and --reasoning-parser {reasoning}: {_BOTH} reads both or"
            " one of them alone; name it twice, or none for the other"
        )
    return AnswerFormats(
        tools="" if tools == "none" else tools, reasoning="" if reasoning == "none" else reasoning
    )


class FormatReader:
    """An answer's reader in the server's events (`chat_events.Reader`).

    parallel: False: a second call ends the answer; it and what follows are not told, and `done`
    says so. only_calls: a grammar lets through calls alone, so that text is markup of one that was
    cut: it is not told.
    """

    def __init__(
        self, choice: int, form: AnswerFormat, *, parallel: bool, only_calls: bool
    ) -> None:
        self._only_calls = only_calls
        self.done = False
        self._choice = choice
        self._reader = AnswerReader(form)
        self._parallel = parallel

    def feed(self, text: str) -> Iterable[Delta]:
        """Events of the text so far that were not told before."""
        return self._told(self._reader.feed(text))

    def close(self) -> Iterable[Delta]:
        """What was kept, when no text follows."""
        return self._told(self._reader.flush())

    def _told(self, events: Iterable[Event]) -> Iterable[Delta]:
        for event in events:
            if isinstance(event, CallStart) and event.index > 0 and not self._parallel:
                self.done = True
            if not self.done and not (self._only_calls and isinstance(event, Text)):
                yield self._delta(event)

    def _delta(self, event: Event) -> Delta:
        if isinstance(event, Text):
            return TextDelta(choice=self._choice, text=event.text)
        if isinstance(event, CallStart):
            return ToolCallStart(
                choice=self._choice, index=event.index, id=event.id, name=event.name
            )
        if isinstance(event, CallArguments):
            return ToolCallArguments(choice=self._choice, index=event.index, delta=event.delta)
        return ReasoningDelta(choice=self._choice, text=event.text)
