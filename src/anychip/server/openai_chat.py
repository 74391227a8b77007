"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.server.auth import caller_of
from anychip.server.errors import bad_request
from anychip.server.generation import Generation, Piece
from anychip.server.openai_protocol import (
    CHAT_NOT_YET,
    Chat,
    ChatChoice,
    ChatChunk,
    ChatRequest,
    ChunkChoice,
    Delta,
    Message,
    Usage,
    check_stream_options,
    sampling_of,
    usage_of,
)
from anychip.server.origin import origin_of
from anychip.server.service import Service
from anychip.server.stream import DONE, EventStream, event, json_answer
from anychip.server.validation import (
    check_sampling,
    check_volume,
    convert,
    fit_max_tokens,
    read_object,
)


async def chat_completions(request: Request) -> Response:
    """Answer a chat, whole or as a stream."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    call = convert(body, ChatRequest, CHAT_NOT_YET)
    generation = await _begin(service, call, caller_of(request).tenant)
    answer = _Answer(service, call, generation)
    if call.stream:
        return EventStream(answer.events())
    return await json_answer(request, answer.whole())


async def _begin(service: Service, call: ChatRequest, tenant: str | None) -> Generation:
    service.check_model(call.model)
    check_stream_options(call)
    sampling = sampling_of(call)
    check_sampling(sampling, service.info.vocab_size)
    origin = origin_of(call, tenant, "chatcmpl")
    variables = call.chat_template_kwargs or {}
    for name in ("messages", "tools", "add_generation_prompt"):
        if name in variables:
            raise bad_request(f"chat_template_kwargs: {name!r} is set by the server", name)
    prompt = await service.texts.chat(call.messages, variables)
    limit = fit_max_tokens(sampling, len(prompt), None, service.room)
    most = service.config.max_tokens_per_call
    check_volume(sampling.n, limit, sampling.max_tokens_name, most)
    return Generation(service, origin, [prompt], [limit], sampling, at_start=True)


class _Answer:
    """The generation in OpenAI's words."""

    def __init__(self, service: Service, call: ChatRequest, generation: Generation) -> None:
        self._generation = generation
        self._model = service.model_name
        self._created = int(time.time())
        self._usage = bool(call.stream_options and call.stream_options.include_usage)

    async def whole(self) -> Chat:
        """The answer in one piece."""
        generation = self._generation
        await generation.run()
        return Chat(
            id=generation.origin.rid,
            created=self._created,
            model=self._model,
            choices=[
                ChatChoice(
                    index=choice.index,
                    message=Message(content=choice.text),
                    finish_reason=choice.finish,
                    matched_stop=choice.matched,
                )
                for choice in generation.choices
            ],
            usage=usage_of(generation.usage()),
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events: roles, texts, ends, usage, [DONE]."""
        begun = False
        async with aclosing(self._generation.pieces()) as pieces:
            async for piece in pieces:
                if not begun:
                    begun = True
                    for choice in self._generation.choices:
                        yield self._chunk(choice.index, Delta(role="assistant", content=""))
                for data in self._piece(piece):
                    yield data
        if self._usage:
            yield event(self._envelope([], usage_of(self._generation.usage())))
        yield DONE

    def _piece(self, piece: Piece) -> list[bytes]:
        events = []
        if piece.text:
            events.append(self._chunk(piece.choice, Delta(content=piece.text)))
        if piece.finish is not None:
            end = ChunkChoice(
                index=piece.choice,
                delta=Delta(),
                finish_reason=piece.finish,
                matched_stop=piece.matched,
            )
            events.append(event(self._envelope([end])))
        return events

    def _chunk(self, index: int, delta: Delta) -> bytes:
        return event(self._envelope([ChunkChoice(index=index, delta=delta)]))

    def _envelope(
        self, choices: list[ChunkChoice], usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    ) -> ChatChunk:
        if usage is msgspec.UNSET and self._usage:
            usage = None  # OpenAI sends the field as null in all chunks but the last
        return ChatChunk(
            id=self._generation.origin.rid,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage,
        )
