"""SGLang's native endpoints: /generate, /tokenize, /detokenize, /flush_cache, /abort_request, …"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.client import EngineUnavailable
from anychip.http.auth import caller_of, require_admin
from anychip.http.errors import ApiError, bad_request, unavailable
from anychip.http.stream import EventStream, json_answer, json_response
from anychip.server.exact import dictated
from anychip.server.generation import Generation
from anychip.server.grammar_fields import wish_of
from anychip.server.native_answer import NativeAnswer
from anychip.server.native_protocol import (
    DEFAULT_MAX_TOKENS,
    GENERATE_NOT_YET,
    SAMPLING_NOT_YET,
    AbortAnswer,
    AbortRequest,
    DetokenizeAnswer,
    DetokenizeRequest,
    FlushAnswer,
    GenerateRequest,
    NativeSampling,
    TokenizeAnswer,
    TokenizeRequest,
)
from anychip.server.origin import origin_of
from anychip.server.room import Room, check_count, check_list, check_volume, fit_max_tokens
from anychip.server.sampling import Sampling, check_logprobs, check_sampling, shared_settings
from anychip.server.service import Service
from anychip.server.validation import convert, read_object, within


async def generate(request: Request) -> Response:
    """Continue one prompt or several; a stream's texts are cumulative, as SGLang's are."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    call = convert(body, GenerateRequest, GENERATE_NOT_YET)
    generation, alone = await begin(service, call, caller_of(request).tenant)
    answer = NativeAnswer(generation, call, service.tokenizer, alone=alone)
    if call.stream:
        return EventStream(answer.events())
    return await json_answer(request, answer.whole())


async def begin(
    service: Service, call: GenerateRequest, tenant: str | None
) -> tuple[Generation, bool]:
    """The checked call, not yet submitted, and whether it has one sequence. ApiError 400."""
    name, prompts, single = _prompts_of(call, service.room)
    sampling = await service.grammars.settled(_sampling_of(call, service.info.vocab_size))
    origin = origin_of(call, tenant, "gen-")
    check_count(len(prompts), sampling.n)
    sampling = dictated(service, sampling, call.emit_token_ids, len(prompts) * sampling.n)
    ids = await service.texts.prompts(prompts, name)
    limits = [fit_max_tokens(sampling, len(one), DEFAULT_MAX_TOKENS, service.room) for one in ids]
    sequences, most = len(prompts) * sampling.n, service.config.max_tokens_per_call
    check_volume(sequences, max(limits), "max_new_tokens", most)
    generation = Generation(service, origin, ids, limits, sampling)
    return generation, single and sampling.n == 1


def _prompts_of(call: GenerateRequest, room: Room) -> tuple[str, list[str | list[int]], bool]:
    """The field they came in, the prompts, and whether it was a single one."""
    if (call.text is None) == (call.input_ids is None):
        raise bad_request("send one of text and input_ids", "text")
    if isinstance(call.text, str):
        return "text", [call.text], True
    items: list[Any] = list(call.text if call.text is not None else call.input_ids or ())
    name = "text" if call.text is not None else "input_ids"
    if not items:
        raise bad_request(f"{name} is empty; send at least one token", name)
    check_list(items, room, name)
    single = [item for item in items if isinstance(item, int)]
    if len(single) == len(items):
        return name, [items], True
    if single:
        raise bad_request("input_ids mixes ids and lists of ids; send one kind", name)
    return name, items, False


def _sampling_of(call: GenerateRequest, vocab_size: int) -> Sampling:
    params = convert(call.sampling_params or {}, NativeSampling, SAMPLING_NOT_YET)
    sampling = Sampling(
        max_tokens=params.max_new_tokens,
        max_tokens_name="max_new_tokens",
        min_tokens=params.min_new_tokens or 0,
        min_tokens_name="min_new_tokens",
        seed=params.sampling_seed,
        grammar=wish_of(params),
        **_logprobs(call),
        **shared_settings(params),
    )
    check_sampling(sampling, vocab_size)
    return sampling


def _logprobs(call: GenerateRequest) -> dict[str, Any]:
    start = -1 if call.logprob_start_len is None else call.logprob_start_len
    within("logprob_start_len", start, -1, 2**31 - 1, "-1: none of the prompt")
    top = max(0, check_logprobs("top_logprobs_num", call.top_logprobs_num))
    if not call.return_logprob:
        if top or start >= 0:
            raise bad_request(
                "top_logprobs_num and logprob_start_len need return_logprob: true", "return_logprob"
            )
        return {}
    asked = {"logprobs": top}
    if start >= 0:
        asked |= {"prompt_logprobs": top, "prompt_logprobs_from": max(1, start)}
    return asked


async def tokenize(request: Request) -> Response:
    """Token ids of a text: `{tokens, count, max_model_len}`."""
    service: Service = request.app.state.service
    body = await read_object(request, service.config.max_request_bytes)
    return json_response(await tokenized(service, convert(body, TokenizeRequest, {})))


async def tokenized(service: Service, call: TokenizeRequest) -> TokenizeAnswer:
    """The answer of /tokenize. ApiError 400."""
    service.check_model(call.model)
    text = call.prompt if call.prompt is not None else call.text
    if text is None or (call.prompt is not None and call.text is not None):
        raise bad_request("send one of prompt and text", "prompt")
    texts = [text] if isinstance(text, str) else text
    rows = await service.texts.tokenize(texts, "prompt", special=call.add_special_tokens)
    single = isinstance(text, str)
    return TokenizeAnswer(
        tokens=list(rows[0]) if single else [list(row) for row in rows],
        count=len(rows[0]) if single else [len(row) for row in rows],
        max_model_len=service.room.longest,
    )


async def detokenize(request: Request) -> Response:
    """The text of token ids, as `text` (SGLang) and `prompt` (vLLM)."""
    service: Service = request.app.state.service
    body = await read_object(request, service.config.max_request_bytes)
    return json_response(await detokenized(service, convert(body, DetokenizeRequest, {})))


async def detokenized(service: Service, call: DetokenizeRequest) -> DetokenizeAnswer:
    """The answer of /detokenize. ApiError 400."""
    service.check_model(call.model)
    service.texts.check_id_count(len(call.tokens), "tokens")
    rows = [item for item in call.tokens if not isinstance(item, int)]
    ids = [item for item in call.tokens if isinstance(item, int)]
    if rows and ids:
        raise bad_request("tokens mixes ids and lists of ids; send one kind", "tokens")
    skip = call.skip_special_tokens
    texts = await service.texts.detokenize(rows or [ids], "tokens", skip_special=skip)
    text = texts if rows else texts[0]
    return DetokenizeAnswer(text=text, prompt=text)


async def flush_cache(request: Request) -> Response:
    """Empty the prefix cache; 400 while requests run or wait."""
    require_admin(request)
    return json_response(await flushed(request.app.state.service))


async def flushed(service: Service) -> FlushAnswer:
    """Empty the prefix cache. ApiError 400 while requests run or wait."""
    try:
        done = await service.client.flush()
    except EngineUnavailable as error:
        raise unavailable(str(error), "engine_unavailable") from error
    if not done:
        stats = service.client.stats
        raise bad_request(
            f"the cache is in use: {stats.running} requests run, {stats.queued} wait; try again",
            code="busy",
        )
    return FlushAnswer(success=True, message="cache flushed")


async def abort_request(request: Request) -> Response:
    """End a running call of the caller by its exact id; anybody's, and all, with the admin key."""
    service: Service = request.app.state.service
    body = await read_object(request, service.config.max_request_bytes)
    call = convert(body, AbortRequest, {})
    if call.abort_all == (call.rid is not None):
        raise bad_request("send one of rid and abort_all: true", "rid")
    if call.abort_all:
        require_admin(request)
        return json_response(AbortAnswer(aborted=service.abort_all()))
    if not service.abort(call.rid or "", caller_of(request)):
        raise ApiError(404, f"no running request has the id {call.rid!r}", param="rid")
    return json_response(AbortAnswer(aborted=1))
