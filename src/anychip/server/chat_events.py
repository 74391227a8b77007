"""What an answer to a chat consists of, whichever dialect it is told in.

Pieces of text come in, events go out; between them one reader for each choice tells what its text
means. A parser of tool calls or of reasoning is such a reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from anychip.server.choice import Piece, ScoredToken


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More of what the assistant says. logprobs: of the tokens that came with it, in order."""

    choice: int
    text: str
    logprobs: tuple[ScoredToken, ...] = ()


class ReasoningDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More of what it thinks before it speaks."""

    choice: int
    text: str


class ToolCallStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool begins. index: counts the calls of this choice from 0."""

    choice: int
    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True, kw_only=True):
    """More of a call's arguments: a part of a JSON text. They come before the next call begins."""

    choice: int
    index: int
    delta: str


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A choice is over: stop, length, abort or tool_calls.

    matched: the stop string or stop token that ended it.
    """

    choice: int
    finish: str
    matched: str | int | None = None


Delta = TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments
ChatEvent = Delta | End


class Reader(Protocol):
    """Tells what the text of one choice means; keeps what it cannot tell yet."""

    def feed(self, text: str) -> Iterable[Delta]:
        """Events of the text so far that were not told before."""

    def close(self) -> Iterable[Delta]:
        """What was kept, when no text follows."""


class PlainReader:
    """All text is what the assistant says."""

    def __init__(self, choice: int) -> None:
        self._choice = choice

    def feed(self, text: str) -> tuple[Delta, ...]:
        """The text itself."""
        return (TextDelta(choice=self._choice, text=text),) if text else ()

    def close(self) -> tuple[Delta, ...]:
        """Nothing is ever kept."""
        return ()


class Telling:
    """The pieces of one choice as events."""

    def __init__(self, reader: Reader) -> None:
        self.reasoning_tokens = 0
        """Tokens of pieces that told reasoning and nothing else."""
        self._reader = reader
        self._called = False
        self._counted = 0

    def events(self, piece: Piece, tokens: int) -> list[ChatEvent]:
        """What a piece tells. A choice that called a tool and stopped ends with tool_calls.

        tokens: of the choice so far, this piece's included.
        """
        told: list[ChatEvent] = list(self._reader.feed(piece.text))
        if piece.finish is not None:
            told.extend(self._reader.close())
        if told:  # what is kept counts with what it turns out to be
            self._count(told, tokens)
        if piece.logprobs:
            _attach(told, piece)
        if piece.finish is not None:
            finish = "tool_calls" if self._called and piece.finish == "stop" else piece.finish
            told.append(End(choice=piece.choice, finish=finish, matched=piece.matched))
        return told

    def _count(self, told: list[ChatEvent], tokens: int) -> None:
        reasoned = 0
        for event in told:
            if isinstance(event, ReasoningDelta):
                reasoned += 1
            elif isinstance(event, ToolCallStart):
                self._called = True
        if reasoned == len(told):
            self.reasoning_tokens += tokens - self._counted
        self._counted = tokens


def _attach(told: list[ChatEvent], piece: Piece) -> None:
    """Let the piece's logprobs go with its first text, or with an empty one where it has none."""
    for place, event in enumerate(told):
        if isinstance(event, TextDelta):
            told[place] = msgspec.structs.replace(event, logprobs=piece.logprobs)
            return
    told.insert(0, TextDelta(choice=piece.choice, text="", logprobs=piece.logprobs))


class ToolCall(msgspec.Struct, kw_only=True):
    """A whole call. arguments: a JSON text."""

    id: str
    name: str
    arguments: str = ""


class Reply:
    """All that one choice told."""

    def __init__(self, choice: int) -> None:
        self.choice = choice
        self.tool_calls: list[ToolCall] = []
        self.logprobs: list[ScoredToken] = []
        self.finish: str | None = None
        self.matched: str | int | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def text(self) -> str:
        """What the assistant said."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """What it thought."""
        return "".join(self._reasoning)

    def add(self, event: ChatEvent) -> None:
        """Take in the next event of this choice."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            self.logprobs.extend(event.logprobs)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
        elif isinstance(event, ToolCallStart):
            self.tool_calls.append(ToolCall(id=event.id, name=event.name))
        elif isinstance(event, ToolCallArguments):
            self.tool_calls[event.index].arguments += event.delta
        else:
            self.finish, self.matched = event.finish, event.matched
