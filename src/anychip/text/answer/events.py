"""What is read out of an answer's text, in order, and how it is put together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Text:
    """More of what the assistant says."""

    text: str


@dataclass(frozen=True)
class Thought:
    """More of what it thinks before it speaks."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A call of a tool begins. index: counts the calls of an answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """More of a call's arguments; joined they are the arguments, a JSON text as the model wrote
    it."""

    index: int
    delta: str


Event = Text | Thought | CallStart | CallArguments


class Flow:
    """Text whose white space at markup is the markup's: it is left out.

    White space at the end is kept back until it is known what follows it.
    """

    def __init__(self, put: Callable[[str], None], *, at_markup: bool) -> None:
        self._put = put
        self._at_markup = at_markup
        self._kept: list[str] = []

    def add(self, text: str) -> None:
        """More text."""
        if self._at_markup:
            text = text.lstrip()
        if not text:
            return
        self._at_markup = False
        body = text.rstrip()
        if body:
            self._put("".join([*self._kept, body]))
            self._kept.clear()
        if len(body) < len(text):
            self._kept.append(text[len(body) :])

    def markup(self) -> None:
        """Markup is here."""
        self._kept.clear()
        self._at_markup = True

    def end(self) -> None:
        """Nothing follows: what was kept back belongs to the text."""
        if self._kept:
            self._put("".join(self._kept))
            self._kept.clear()


class Sink:
    """Where a reader puts what it reads.

    names: of the tools that may be called; anything else that looks like a call is none.
    new_id: the id of the next call.
    """

    def __init__(self, names: Collection[str], new_id: Callable[[], str]) -> None:
        self.names = frozenset(names)
        self.calls = 0
        self._new_id = new_id
        self._events: list[Event] = []
        self._text = Flow(lambda text: self._events.append(Text(text)), at_markup=False)
        self._thought = Flow(lambda text: self._events.append(Thought(text)), at_markup=True)

    def text(self, text: str) -> None:
        """What the assistant says."""
        self._text.add(text)

    def thought(self, text: str) -> None:
        """What it thinks."""
        self._thought.add(text)

    def markup(self) -> None:
        """Markup is here: between thoughts, text and calls."""
        self._text.markup()
        self._thought.markup()

    def call(self, name: str) -> None:
        """A call begins."""
        self.markup()
        self._events.append(CallStart(self.calls, self._new_id(), name))
        self.calls += 1

    def arguments(self, delta: str) -> None:
        """More arguments of the call that began last."""
        if delta:
            self._events.append(CallArguments(self.calls - 1, delta))

    def end(self) -> None:
        """The answer is over."""
        self._thought.end()
        self._text.end()

    def take(self) -> list[Event]:
        """What was put here since the last time; what goes together is one event."""
        events, self._events = self._events, []
        return [_joined(kind, list(run)) for kind, run in groupby(events, _kind)]


def _kind(event: Event) -> tuple[type, int]:
    index = event.index if isinstance(event, CallStart | CallArguments) else -1
    return type(event), index


def _joined(kind: tuple[type, int], run: list[Event]) -> Event:
    if len(run) == 1:
        return run[0]
    if kind[0] is CallArguments:
        return CallArguments(kind[1], "".join(e.delta for e in run if isinstance(e, CallArguments)))
    text = "".join(event.text for event in run if isinstance(event, Text | Thought))
    return Text(text) if kind[0] is Text else Thought(text)
