"""Server-sent events of a completion or a chat, read as they come."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from .calls import Failure


class _Delta(msgspec.Struct):
    """Of a chat. reasoning_content and reasoning: two names of the same."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    """index: which of several answers to one call; the first is read."""

    index: int = 0
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def written(self) -> str:
        """Text that this event adds."""
        delta = self.delta or _Delta()
        return self.text or delta.content or delta.reasoning_content or delta.reasoning or ""

    @property
    def adds(self) -> bool:
        """Whether it adds to the answer; a part of a tool call is no text, and does."""
        return bool(self.written or (self.delta and self.delta.tool_calls))


class PromptDetails(msgspec.Struct):
    """Of a prompt's tokens, those that were found in the cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """How a server counts; None where it does not tell."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)
_SHOWN = 300


class Stream:
    """What has been seen of one answer; the times are those that `feed` is given."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.finish: str | None = None
        self.failure: Failure | None = None
        self.done = False
        self._texts: list[str] = []
        self._usage = Usage()
        self._held = b""

    def feed(self, data: bytes, now: float) -> None:
        """Take in what came at `now`, cut wherever the network cut it."""
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now)

    def _take(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            text = f"{error}: {data[:_SHOWN].decode(errors='replace')}"
            self.failure = self.failure or Failure(kind="no stream", text=text)
            return
        if event.error is not None:
            self.failure = self.failure or Failure(kind="error event", text=error_text(event.error))
            return
        self._usage = event.usage or self._usage
        for choice in event.choices or ():
            if not choice.index:
                self._add(choice, now)

    def _add(self, choice: _Choice, now: float) -> None:
        self.finish = choice.finish_reason or self.finish
        # Text that was held back, half of a character, may never come: the end stands for it.
        if choice.adds or (choice.finish_reason and not self.times):
            self.times.append(now)
            self._texts.append(choice.written)

    @property
    def seen(self) -> dict[str, Any]:
        """Fields of an `Answer`, without when it was due, sent and over."""
        times, usage = self.times, self._usage
        details = usage.prompt_tokens_details or PromptDetails()
        told = usage.completion_tokens
        return {
            "first_s": times[0] if times else None,
            "last_s": times[-1] if times else None,
            "gaps": tuple(b - a for a, b in itertools.pairwise(times)),
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": details.cached_tokens,
            "output_tokens": len(times) if told is None else told,
            "counted": told is not None,
            "finish": self.finish,
            "text": "".join(self._texts),
        }

    def verdict(self) -> Failure | None:
        """What is wrong with the answer, once the stream is over."""
        held, self._held = self._held, b""
        if held.startswith(b"data:"):  # the last line need not end
            self._take(held[5:].strip(), self.times[-1] if self.times else 0.0)
        if self.failure is None and self.finish is None:
            seen = "before its end" if self.times else "before a first piece"
            return Failure(kind="cut", text=f"the stream ended {seen}: no finish_reason came")
        return self.failure


def error_text(error: object) -> str:
    """An error in the server's own words, where it has some."""
    told = error.get("message") if isinstance(error, Mapping) else error
    return str(told)[:_SHOWN]


def _is_down(error: object) -> bool:
    """Whether a server of ours says that its engine is dead or restarts: no longer queue helps."""
    return isinstance(error, Mapping) and error.get("code") == "engine_unavailable"


def phrase(status: int) -> str:
    """What HTTP calls a status; empty for one that it does not know."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "a status of its own"


def refusal(status: int, body: bytes) -> Failure:
    """An answer that is no stream because of its status."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        found = None
    error = (found.get("error") or found.get("detail")) if isinstance(found, dict) else None
    text = error_text(error) if error else body[:_SHOWN].decode(errors="replace").strip()
    text = text or f"{phrase(status)}, and no word why"
    if status in (429, 503) and not _is_down(error):
        return Failure(kind="busy", text=text, status=status)
    return Failure(kind="refused" if 400 <= status < 500 else "server", text=text, status=status)
