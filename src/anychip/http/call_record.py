"""What one HTTP call was about, written down by whoever learns it, for access log and traces."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from anychip.request import Mark, Request

_CURRENT: ContextVar[CallRecord | None] = ContextVar("call", default=None)


class Stage(NamedTuple):
    """Something that the server did for a call: monotonic seconds, and the error that ended it."""

    name: str
    begin: float
    end: float
    error: str | None


class ToldError(NamedTuple):
    """The error that the client was told. kind, code: as in the body."""

    kind: str
    code: str | None


class TokenCounts(Protocol):
    """`generation.Usage`."""

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""

    @property
    def completion_tokens(self) -> int:
        """Of all choices."""

    @property
    def cached_tokens(self) -> int:
        """Of the prompts, found in the prefix cache."""


class Recorded(Protocol):
    """The sequences of a call (`generation.Generation`). submitted: the engine was asked."""

    started: float
    first_token: float | None
    ended: float | None
    submitted: bool
    requests: list[Request]

    @property
    def rid(self) -> str:
        """The answer's id."""

    @property
    def finishes(self) -> Sequence[str | None]:
        """How each choice ended; None: it did not, or was cut short."""

    def usage(self) -> TokenCounts:
        """Tokens so far."""


@dataclass(kw_only=True)
class CallRecord:
    """One call. Times are monotonic seconds; epoch_ns is the wall clock's at `started`.

    request_id: the client's x-request-id, or a new one. status: None until an answer has begun.
    outcome: "complete", "disconnected" (the client left), or "cut" (the server broke it off).
    traced: whether spans are made of it; then `timelines` collects what the engine tells.
    worker: who answered it, where a router passed it on.
    traceparent: what W3C Trace Context calls this call, for the answer and whoever is asked next.
    """

    request_id: str
    method: str
    path: str
    started: float = field(default_factory=time.monotonic)
    epoch_ns: int = field(default_factory=time.time_ns)
    status: int | None = None
    outcome: str = "cut"
    caller: str | None = None
    stream: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    ended: float | None = None
    model: str | None = None
    worker: str | None = None
    error: ToldError | None = None
    traced: bool = False
    traceparent: str | None = None
    stages: list[Stage] = field(default_factory=list)
    generation: Recorded | None = None
    timelines: dict[str, tuple[Mark, ...]] = field(default_factory=dict)

    def generates(self, generation: Recorded, model: str) -> None:
        """The call was understood and has sequences now."""
        self.generation, self.model = generation, model


def current_call() -> CallRecord | None:
    """The record of the call that is being answered here; None outside of HTTP."""
    return _CURRENT.get()


def begin_call(record: CallRecord) -> None:
    """What runs in this task from now on, and in the tasks that it starts, is for this call."""
    _CURRENT.set(record)


def tell_error(kind: str, code: str | None) -> None:
    """The client is told of an error."""
    record = current_call()
    if record is not None:
        record.error = ToldError(kind, code)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Note begin and end of what is done inside, where the call is traced."""
    record = current_call()
    if record is None or not record.traced:
        yield
        return
    begun, error = time.monotonic(), None
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        record.stages.append(Stage(name, begun, time.monotonic(), error))
