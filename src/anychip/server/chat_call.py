"""A chat as the server understands it, whichever dialect it came in: checks, prompt, answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from anychip.server.chat_events import ChatEvent, PlainReader, Reader, Reply, Telling
from anychip.server.errors import bad_request
from anychip.server.generation import Generation, Usage
from anychip.server.origin import Origin
from anychip.server.room import check_volume, fit_max_tokens
from anychip.server.sampling import Sampling, check_sampling
from anychip.server.service import Service

_SET_BY_US = ("messages", "tools", "add_generation_prompt")


class ToolWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools there are and which may be called.

    tools: in the form of OpenAI's chats. choice: auto, none, required, or named with its `name`.
    parallel: whether one answer may call several.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = "auto"
    name: str | None = None
    parallel: bool = True


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """What any dialect's chat comes to.

    messages: as templates expect them, in OpenAI's form. sampling: ranges not yet checked; a
    wish for a grammar is part of it. variables: for the template.
    """

    messages: Sequence[Mapping[str, Any]]
    sampling: Sampling
    origin: Origin
    model: str | None = None
    variables: Mapping[str, Any] = {}
    tools: ToolWish = ToolWish()


class ChatUsage(Usage, frozen=True, kw_only=True):
    """Tokens of one call; reasoning_tokens: those of the completion that were not said."""

    reasoning_tokens: int


class ChatAnswer:
    """The answer to a chat that was understood; nothing runs before it is asked for."""

    def __init__(self, generation: Generation) -> None:
        self.origin = generation.origin
        self.choices = range(len(generation.choices))
        self.generation = generation
        self._telling = [Telling(self._reader(choice)) for choice in self.choices]

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Everything that is told, as it comes. Close the iterator to abort the rest.

        Raises ApiError as `Generation.pieces` does.
        """
        async with aclosing(self.generation.pieces()) as pieces:
            async for piece in pieces:
                tokens = len(self.generation.choices[piece.choice].token_ids)
                for event in self._telling[piece.choice].events(piece, tokens):
                    yield event

    async def replies(self) -> list[Reply]:
        """Every choice whole."""
        replies = [Reply(choice) for choice in self.choices]
        async with aclosing(self.events()) as events:
            async for event in events:
                replies[event.choice].add(event)
        return replies

    def abort(self) -> None:
        """End what still runs; its choices finish with "abort"."""
        self.generation.abort()

    def usage(self) -> ChatUsage:
        """Tokens so far."""
        counts = msgspec.structs.asdict(self.generation.usage())
        return ChatUsage(**counts, reasoning_tokens=sum(t.reasoning_tokens for t in self._telling))

    def _reader(self, choice: int) -> Reader:
        """What tells the meaning of a choice's text."""
        return PlainReader(choice)


async def prepare(service: Service, call: ChatCall) -> ChatAnswer:
    """Check everything and render the prompt. ApiError says what is wrong."""
    service.check_model(call.model)
    sampling = call.sampling
    check_sampling(sampling, service.info.vocab_size)
    sampling = await service.grammars.settled(sampling)
    prompt = await prompt_of(service, call)
    limit = fit_max_tokens(sampling, len(prompt), None, service.room)
    most = service.config.max_tokens_per_call
    check_volume(sampling.n, limit, sampling.max_tokens_name, most)
    return ChatAnswer(Generation(service, call.origin, [prompt], [limit], sampling, at_start=True))


async def prompt_of(service: Service, call: ChatCall) -> tuple[int, ...]:
    """Token ids of the chat, up to where the assistant speaks. ApiError 400."""
    for name in _SET_BY_US:
        if name in call.variables:
            raise bad_request(f"chat_template_kwargs: {name!r} is set by the server", name)
    _refuse_tools(call.tools)
    return await service.texts.chat(call.messages, call.variables)


def _refuse_tools(wish: ToolWish) -> None:
    name = "tools" if wish.tools else "tool_choice"
    if wish.tools or wish.choice in ("required", "named"):
        raise bad_request(f"{name} is not supported yet; leave it out", name, "not_supported")
