"""Calls of `anychip.Engine` as bodies of the server's endpoints: the same fields, checks, texts.

Each runs in the engine's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anychip.http.errors import bad_request
from anychip.http.keys import Caller
from anychip.offline.answers import Answer
from anychip.offline.telling import ChatTelling, CompletionTelling, NativeTelling, Telling
from anychip.server import native, openai_chat, openai_completions
from anychip.server.completion_answer import CompletionAnswer
from anychip.server.native_protocol import (
    GENERATE_NOT_YET,
    DetokenizeRequest,
    GenerateRequest,
    TokenizeRequest,
)
from anychip.server.openai_protocol import (
    CHAT_NOT_YET,
    COMPLETION_NOT_YET,
    ChatRequest,
    CompletionRequest,
)
from anychip.server.service import Service
from anychip.server.validation import convert

Body = dict[str, Any]

_EVERYTHING = Caller(admin=True)


def is_single(prompt: object, input_ids: object) -> bool:
    """Whether what is given is one prompt: a text, or ids; not a list of either."""
    given = input_ids if prompt is None else prompt
    if isinstance(given, Sequence) and not isinstance(given, str):
        return bool(given) and isinstance(given[0], int)
    return True


def _given(prompt: object, input_ids: object) -> object:
    if (prompt is None) == (input_ids is None):
        raise bad_request("send one of prompt and input_ids", "prompt")
    return input_ids if prompt is None else prompt


async def begin_generate(
    service: Service, prompt: object, input_ids: object, body: Body
) -> Telling:
    """A call of /generate where it brings `sampling_params`, else of /v1/completions."""
    service.check_open()
    given = _given(prompt, input_ids)
    if body.get("sampling_params") is None:
        return await _begin_completion(service, {**body, "prompt": given})
    name = "text" if input_ids is None else "input_ids"
    call = convert({**body, name: given}, GenerateRequest, GENERATE_NOT_YET)
    generation, _ = await native.begin(service, call, None)
    return NativeTelling(generation, scored=bool(call.return_logprob))


async def _begin_completion(service: Service, body: Body) -> Telling:
    body.pop("sampling_params", None)
    call = convert(body, CompletionRequest, COMPLETION_NOT_YET)
    generation = await openai_completions.begin(service, call, None)
    answer = CompletionAnswer(service, call, generation)
    return CompletionTelling(generation, answer, scored=call.logprobs is not None)


async def begin_chat(service: Service, messages: object, body: Body) -> Telling:
    """A call of /v1/chat/completions."""
    service.check_open()
    call = convert({**body, "messages": messages}, ChatRequest, CHAT_NOT_YET)
    answer = await openai_chat.begin(service, call, None)
    return ChatTelling(answer, scored=bool(call.logprobs))


async def generate(service: Service, prompt: object, input_ids: object, body: Body) -> list[Answer]:
    """Generate all of it: one answer a prompt."""
    return await (await begin_generate(service, prompt, input_ids, body)).whole()


async def chat(service: Service, messages: object, body: Body) -> Answer:
    """Generate all of it."""
    return (await (await begin_chat(service, messages, body)).whole())[0]


async def nothing(service: Service) -> None:
    """Wait for the start."""


async def tokenize(service: Service, text: object, special: bool) -> list[int]:
    """As /tokenize, for one text."""
    body = {"prompt": text, "add_special_tokens": special}
    tokens = (await native.tokenized(service, convert(body, TokenizeRequest, {}))).tokens
    ids = [item for item in tokens if isinstance(item, int)]
    if len(ids) < len(tokens):
        raise bad_request("text is a list; send one text a call", "text")
    return ids


async def detokenize(service: Service, tokens: object, skip_special: bool) -> str:
    """As /detokenize, for one list of ids."""
    body = {"tokens": tokens, "skip_special_tokens": skip_special}
    text = (await native.detokenized(service, convert(body, DetokenizeRequest, {}))).text
    if not isinstance(text, str):
        raise bad_request("token_ids has lists of ids; send one list a call", "token_ids")
    return text


async def abort(service: Service, rid: str | None) -> int:
    """End the call of that id, or all; how many were ended."""
    return service.abort_all() if rid is None else int(service.abort(rid, _EVERYTHING))


async def flush_cache(service: Service) -> None:
    """As /flush_cache."""
    await native.flushed(service)
