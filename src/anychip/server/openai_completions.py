"""POST /v1/completions."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.http.auth import caller_of
from anychip.http.errors import bad_request
from anychip.http.stream import EventStream, json_answer
from anychip.request import NO_LOGPROBS
from anychip.server.completion_answer import CompletionAnswer
from anychip.server.exact import dictated
from anychip.server.generation import Generation
from anychip.server.openai_protocol import (
    COMPLETION_NOT_YET,
    CompletionRequest,
    check_stream_options,
    sampling_of,
)
from anychip.server.origin import origin_of
from anychip.server.room import Room, check_count, check_list, check_volume, fit_max_tokens
from anychip.server.sampling import MAX_N, Sampling, check_sampling
from anychip.server.service import Service
from anychip.server.validation import convert, read_object, within

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default of this endpoint."""


async def completions(request: Request) -> Response:
    """Continue one prompt or several, whole or as a stream."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    call = convert(body, CompletionRequest, COMPLETION_NOT_YET)
    generation = await begin(service, call, caller_of(request).tenant)
    answer = CompletionAnswer(service, call, generation)
    if call.stream:
        return EventStream(answer.events())
    return await json_answer(request, answer.whole())


async def begin(service: Service, call: CompletionRequest, tenant: str | None) -> Generation:
    """The checked call, not yet submitted. ApiError 400."""
    service.check_model(call.model)
    check_stream_options(call)
    sampling = drawn(call, echoed(call, sampling_of(call)))
    check_sampling(sampling, service.info.vocab_size)
    sampling = await service.grammars.settled(sampling)
    origin = origin_of(call, tenant, "cmpl-")
    texts = split_prompts(call.prompt, service.room)
    check_count(len(texts), sampling.n)
    sampling = dictated(service, sampling, call.emit_token_ids, len(texts) * sampling.n)
    prompts = await service.texts.prompts(texts, "prompt")
    limits = [
        fit_max_tokens(sampling, len(prompt), DEFAULT_MAX_TOKENS, service.room)
        for prompt in prompts
    ]
    sequences, most = len(texts) * sampling.n, service.config.max_tokens_per_call
    check_volume(sequences, max(limits), "max_tokens", most)
    return Generation(service, origin, prompts, limits, sampling)


def echoed(call: CompletionRequest, sampling: Sampling) -> Sampling:
    """With the prompt's probabilities where it comes back with them.

    A prompt that only comes back (max_tokens 0) is continued by one token, which nobody is told.
    """
    if not call.echo:
        return sampling
    if sampling.logprobs != NO_LOGPROBS:
        most = max(sampling.logprobs, sampling.prompt_logprobs)
        sampling = msgspec.structs.replace(sampling, prompt_logprobs=most)
    if sampling.max_tokens == 0:
        sampling = msgspec.structs.replace(sampling, max_tokens=1)
    return sampling


def drawn(call: CompletionRequest, sampling: Sampling) -> Sampling:
    """With as many choices as are drawn. ApiError 400 for a best_of that cannot be."""
    if call.best_of is None or call.best_of == sampling.n:
        return sampling
    within("best_of", call.best_of, sampling.n, MAX_N, "it is at least n")
    if call.stream:
        raise bad_request(
            "best_of over n cannot be streamed: which choices are best is known at the end",
            "best_of",
        )
    logprobs = max(sampling.logprobs, 0)  # to tell which are best
    return msgspec.structs.replace(sampling, n=call.best_of, logprobs=logprobs)


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
