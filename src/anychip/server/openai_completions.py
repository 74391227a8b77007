"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.server.auth import caller_of
from anychip.server.errors import bad_request
from anychip.server.generation import Generation
from anychip.server.openai_protocol import (
    COMPLETION_NOT_YET,
    Completion,
    CompletionChoice,
    CompletionRequest,
    Usage,
    check_stream_options,
    sampling_of,
    usage_of,
)
from anychip.server.origin import origin_of
from anychip.server.service import Service
from anychip.server.stream import DONE, EventStream, event, json_answer
from anychip.server.validation import (
    Room,
    check_count,
    check_list,
    check_sampling,
    check_volume,
    convert,
    fit_max_tokens,
    read_object,
)

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default of this endpoint."""


async def completions(request: Request) -> Response:
    """Continue one prompt or several, whole or as a stream."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    call = convert(body, CompletionRequest, COMPLETION_NOT_YET)
    generation = await _begin(service, call, caller_of(request).tenant)
    answer = _Answer(service, call, generation)
    if call.stream:
        return EventStream(answer.events())
    return await json_answer(request, answer.whole())


async def _begin(service: Service, call: CompletionRequest, tenant: str | None) -> Generation:
    service.check_model(call.model)
    check_stream_options(call)
    sampling = sampling_of(call)
    check_sampling(sampling, service.info.vocab_size)
    origin = origin_of(call, tenant, "cmpl")
    texts = split_prompts(call.prompt, service.room)
    check_count(len(texts), sampling.n)
    prompts = await service.texts.prompts(texts, "prompt")
    limits = [
        fit_max_tokens(sampling, len(prompt), DEFAULT_MAX_TOKENS, service.room)
        for prompt in prompts
    ]
    sequences, most = len(texts) * sampling.n, service.config.max_tokens_per_call
    check_volume(sequences, max(limits), "max_tokens", most)
    return Generation(service, origin, prompts, limits, sampling)


def split_prompts(prompt: str | list[str | int | list[int]], room: Room) -> list[str | list[int]]:
    """The prompts of a call: a text, ids, or a list of either. ApiError 400 for a mixture."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise bad_request("prompt is empty; send at least one token", "prompt")
    check_list(prompt, room, "prompt")
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [ids]
    several = [item for item in prompt if not isinstance(item, int)]
    if ids or len({type(item) for item in several}) > 1:
        raise bad_request("prompt mixes texts and token ids; send one kind", "prompt")
    return several


class _Answer:
    """The generation in OpenAI's words."""

    def __init__(self, service: Service, call: CompletionRequest, generation: Generation) -> None:
        self._generation = generation
        self._model = service.model_name
        self._created = int(time.time())
        self._usage = bool(call.stream_options and call.stream_options.include_usage)

    async def whole(self) -> Completion:
        """The answer in one piece."""
        await self._generation.run()
        choices = [
            CompletionChoice(
                index=choice.index,
                text=choice.text,
                finish_reason=choice.finish,
                matched_stop=choice.matched,
            )
            for choice in self._generation.choices
        ]
        return self._completion(choices, usage_of(self._generation.usage()))

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events: texts, ends, usage, [DONE]."""
        usage = None if self._usage else msgspec.UNSET
        async with aclosing(self._generation.pieces()) as pieces:
            async for piece in pieces:
                matched = msgspec.UNSET if piece.finish is None else piece.matched
                choice = CompletionChoice(
                    index=piece.choice,
                    text=piece.text,
                    finish_reason=piece.finish,
                    matched_stop=matched,
                )
                yield event(self._completion([choice], usage))
        if self._usage:
            yield event(self._completion([], usage_of(self._generation.usage())))
        yield DONE

    def _completion(
        self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None
    ) -> Completion:
        return Completion(
            id=self._generation.origin.rid,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage,
        )
