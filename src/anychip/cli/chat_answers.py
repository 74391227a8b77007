"""Where `anychip chat` gets its answers from, and how one is told piece by piece."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from anychip.offline import Engine

Messages = list[dict[str, Any]]
TOO_LONG = "context_length_exceeded"
"""The code of an error, at OpenAI as here."""


class ChatError(Exception):
    """What cannot be done in a chat; the text is for the user."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer gained. thought: text of a reasoning model before it answers.

    The counts are those so far, None where the source does not tell. finish: why it ended.
    """

    text: str = ""
    thought: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Source(Protocol):
    """Answers chats. title: what it is, in a few words."""

    title: str

    def answer(self, messages: Messages, params: dict[str, Any]) -> Generator[Said, None, None]:
        """The answer as it comes; closing the generator aborts the rest."""


class Local:
    """An Engine that was started in place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        info = engine.info
        self.title = f"{info.model_name} on {info.backend}, context of {info.context_length} tokens"

    def answer(self, messages: Messages, params: dict[str, Any]) -> Generator[Said, None, None]:
        """Raises ChatError."""
        from anychip.offline import CallError

        try:
            with closing(self._engine.chat(messages, stream=True, **params)) as parts:
                for part in parts:
                    yield Said(
                        text=part.text,
                        finish=part.finish_reason,
                        prompt_tokens=part.prompt_tokens,
                        completion_tokens=part.completion_tokens,
                        cached_tokens=part.cached_tokens,
                    )
        except CallError as error:
            raise refused(str(error), error.code) from error


def refused(text: str, code: object) -> ChatError:
    """What a server, or an engine, said about a request, and a way out. code: of its error."""
    return ChatError(text + ("; /reset begins anew" if code == TOO_LONG else ""))
