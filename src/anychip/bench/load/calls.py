"""What a load client asks, and what it saw of each answer. Times are seconds of one run's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

FailureKind = Literal[
    "connect", "busy", "refused", "server", "error event", "cut", "no stream", "timeout"
]
"""Why an answer failed. connect: nobody took the call; busy: HTTP 429 or 503; refused: another 4xx;
server: another status, or the 503 of a server whose engine is down; error event: within the stream;
cut: the stream ended without a finish; no stream: what came is no stream of completions; timeout:
nothing came for too long."""


class LoadError(ValueError):
    """The load cannot be run as asked; the text says why, and the way out. status: of HTTP, where
    a server's answer is why."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Interrupted(LoadError):
    """The load was interrupted before anything was answered."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    at_s: when it is due, from the start of the load. prompt: token ids or a text, for
    /v1/completions; messages: of a chat, in place of a prompt. params: more fields of the body.
    expected: the tokens that were answered when the request was recorded.
    """

    id: str
    max_tokens: int
    at_s: float = 0.0
    prompt: tuple[int, ...] | str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] = {}
    expected: tuple[int, ...] | None = None

    @property
    def path(self) -> str:
        """The endpoint, behind the server's /v1."""
        return "/chat/completions" if self.messages else "/completions"

    def body(self, model: str) -> dict[str, Any]:
        """The JSON body: a stream that tells its usage at the end."""
        asked: dict[str, Any] = {"model": model}
        if self.messages:
            asked["messages"] = self.messages
        else:
            asked["prompt"] = self.prompt
        asked |= {"max_tokens": self.max_tokens, **self.params}
        return {**asked, "stream": True, "stream_options": {"include_usage": True}}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no whole answer. status: of HTTP, None where there was none."""

    kind: FailureKind
    text: str
    status: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one answer. All times but `gaps` count from the start of the load.

    scheduled_s: when the call was due; sent_s: when it was sent; first_s, last_s: the first and
    the last piece with text, None where none came; end_s: when the answer was over. gaps: seconds
    between two pieces. prompt_tokens, cached_tokens: None where the server does not tell.
    output_tokens: as the server counts, else one for each piece (`counted` says which).
    asked_tokens: the call's `max_tokens`. failure: None for a whole answer.
    """

    id: str
    scheduled_s: float
    sent_s: float
    end_s: float
    first_s: float | None = None
    last_s: float | None = None
    gaps: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int = 0
    counted: bool = False
    asked_tokens: int = 0
    finish: str | None = None
    text: str = ""
    failure: Failure | None = None

    @property
    def lateness_s(self) -> float:
        """How long after it was due the call was sent."""
        return self.sent_s - self.scheduled_s

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first piece of text."""
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds of a token after the first; None where there is no second one, or all came
        in one piece."""
        if self.first_s is None or self.last_s is None or self.output_tokens < 2:
            return None
        later = self.last_s - self.first_s
        return later / (self.output_tokens - 1) if later > 0 else None

    @property
    def total_s(self) -> float:
        """From sending to the end."""
        return self.end_s - self.sent_s


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A load that was run. loop: open (calls are sent when they are due, whatever is still
    unanswered) or closed (`concurrency` callers, each of which waits for its answer). seconds: from
    its start to the last answer. begun: unix time. interrupted: some calls were never sent;
    unanswered: and so many were under way."""

    loop: Literal["open", "closed"]
    answers: tuple[Answer, ...]
    seconds: float
    begun: float = 0.0
    speed: float = 1.0
    concurrency: int | None = None
    interrupted: bool = False
    unanswered: int = 0
