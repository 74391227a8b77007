"""Anthropic's /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from anychip.http.auth import caller_of
from anychip.http.errors import ApiError, bad_request
from anychip.http.stream import EventStream, json_answer, json_response, named_event
from anychip.server.chat_call import ChatAnswer, ChatCall, prepare, prompt_of
from anychip.server.messages_input import (
    effort_of,
    goes_on,
    messages_of,
    sampling_of,
    thinks,
    tools_of,
)
from anychip.server.messages_protocol import (
    COUNT_NOT_YET,
    MESSAGES_NOT_YET,
    CountRequest,
    MessageEvent,
    MessageObject,
    MessagesRequest,
    Ping,
    TokenCount,
)
from anychip.server.messages_writer import MessageWriter
from anychip.server.origin import Origin, origin_of
from anychip.server.sampling import Sampling
from anychip.server.service import Service
from anychip.server.thinking import effort_variables, thinking_variables
from anychip.server.validation import convert, read_object

VERSIONS = ("2023-06-01", "2026-10-21")
"""Of Anthropic's API, as clients send them: the later one asks for less and is answered alike."""
QUIET_S = 10.0
"""Seconds without an event after which a stream pings."""


async def create_message(request: Request) -> Response:
    """Answer a chat as Anthropic does, whole or as a stream."""
    service: Service = request.app.state.service
    service.check_open()
    _check_version(request)
    body = await read_object(request, service.config.max_request_bytes)
    asked = convert(body, MessagesRequest, MESSAGES_NOT_YET)
    origin = origin_of(asked, caller_of(request).tenant, "msg_")
    answer = await prepare(service, _call(service, asked, sampling_of(asked), origin))
    writer = MessageWriter(answer.origin.rid, service.model_name)
    if asked.stream:
        return EventStream(_events(answer, writer), ping=_encode(Ping()), quiet_s=QUIET_S)
    return await json_answer(request, _whole(answer, writer))


async def count_tokens(request: Request) -> Response:
    """Tokens that the prompt of a message would have."""
    service: Service = request.app.state.service
    _check_version(request)
    body = await read_object(request, service.config.max_request_bytes)
    asked = convert(body, CountRequest, COUNT_NOT_YET)
    service.check_model(asked.model)
    nothing = Sampling(max_tokens=1), Origin(rid="count")  # no answer is asked for
    prompt = await prompt_of(service, _call(service, asked, *nothing))
    return json_response(TokenCount(len(prompt)))


def _check_version(request: Request) -> None:
    """ApiError 400 for a version whose answers look different. Without one the last is meant."""
    given = request.headers.get("anthropic-version", VERSIONS[-1])
    if given not in VERSIONS:
        text = f"anthropic-version is {given!r}; this server speaks {' and '.join(VERSIONS)}"
        raise bad_request(text, "anthropic-version")


def _call(service: Service, asked: CountRequest, sampling: Sampling, origin: Origin) -> ChatCall:
    messages = messages_of(asked)
    return ChatCall(
        model=asked.model,
        messages=messages,
        sampling=sampling,
        origin=origin,
        variables={
            **thinking_variables(service, thinks(asked), "thinking"),
            **effort_variables(service, effort_of(asked), "output_config.effort"),
            **(asked.chat_template_kwargs or {}),
        },
        tools=tools_of(asked),
        continue_final_message=goes_on(messages),
    )


async def _whole(answer: ChatAnswer, writer: MessageWriter) -> MessageObject:
    async with aclosing(answer.events()) as events:
        async for told in events:
            for _ in writer.take(told):
                pass
    return writer.message(answer.usage())


async def _events(answer: ChatAnswer, writer: MessageWriter) -> AsyncGenerator[bytes, None]:
    """An ApiError before the first event is raised; a later one is the last event."""
    begun = False
    try:
        async with aclosing(answer.events()) as events:
            async for told in events:
                if not begun:
                    begun = True
                    for event in writer.begin(answer.usage()):
                        yield _encode(event)
                for event in writer.take(told):
                    yield _encode(event)
        for event in writer.finish(answer.usage()):
            yield _encode(event)
    except ApiError as error:
        if not begun:
            raise
        error.note()
        yield named_event("error", error.anthropic())


def _encode(event: MessageEvent) -> bytes:
    return named_event(str(event.__struct_config__.tag), event)
