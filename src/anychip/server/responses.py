"""OpenAI's /v1/responses: create, retrieve, cancel, delete."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.http.auth import caller_of
from anychip.http.errors import bad_request, unavailable
from anychip.http.stream import EventStream, json_answer, json_response
from anychip.server.chat_call import ChatAnswer, ChatCall, prepare
from anychip.server.logprobs import chat_logprobs
from anychip.server.origin import Origin, origin_of
from anychip.server.responses_input import (
    check_wishes,
    effort_of,
    messages_of,
    sampling_of,
    tools_of,
)
from anychip.server.responses_protocol import (
    RESPONSES_NOT_YET,
    ResponseDeleted,
    ResponseObject,
    ResponsesRequest,
)
from anychip.server.responses_run import ResponseRun
from anychip.server.responses_store import ResponseStore
from anychip.server.responses_writer import Scoring
from anychip.server.service import Service
from anychip.server.thinking import effort_variables
from anychip.server.validation import convert, read_object

_TRUTH = {"true": True, "false": False, "1": True, "0": False}


async def create_response(request: Request) -> Response:
    """Answer an input, whole, as a stream, or in the background."""
    service: Service = request.app.state.service
    service.check_open()
    body = await read_object(request, service.config.max_request_bytes)
    asked = convert(body, ResponsesRequest, RESPONSES_NOT_YET)
    check_wishes(asked)
    store = _store(request)
    run = await _prepare(service, store, asked, caller_of(request).tenant)
    if asked.background:
        _check_place(service, store)
        run.begin(streamed=bool(asked.stream))
        return EventStream(run.follow(-1)) if asked.stream else json_response(run.response)
    if asked.stream:
        return EventStream(run.stream())
    return await json_answer(request, run.whole())


async def _prepare(
    service: Service,
    store: ResponseStore[ResponseRun],
    asked: ResponsesRequest,
    tenant: str | None,
) -> ResponseRun:
    origin = origin_of(asked, tenant, "resp_")
    _check_rid(service, store, origin)
    messages = [*_before(store, asked, tenant), *messages_of(asked.input)]
    first = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
    call = ChatCall(
        model=asked.model,
        messages=[*first, *messages],
        sampling=sampling_of(asked),
        origin=origin,
        variables={
            **effort_variables(service, effort_of(asked), "reasoning.effort"),
            **(asked.chat_template_kwargs or {}),
        },
        tools=tools_of(asked),
        messages_name="input",
    )
    answer: ChatAnswer = await prepare(service, call)
    _check_rid(service, store, origin)  # another call may have been faster meanwhile
    blank = _blank(service.model_name, asked, call)
    scoring = _scoring(service) if asked.include else None
    return ResponseRun(store, answer, blank, messages, scoring)


def _check_rid(service: Service, store: ResponseStore[ResponseRun], origin: Origin) -> None:
    """ApiError 400 where the id is a running call's, or a stored response's."""
    service.check_rid(origin)
    if store.has(origin.tenant, origin.rid):
        raise bad_request(f"rid {origin.rid!r} has a response; choose another", "rid")


def _scoring(service: Service) -> Scoring:
    bytes_of = service.tokenizer.table.piece
    return lambda scored: chat_logprobs(scored, bytes_of).content


def _before(
    store: ResponseStore[ResponseRun], asked: ResponsesRequest, tenant: str | None
) -> list[dict[str, Any]]:
    """The conversation that the call goes on with."""
    name = asked.previous_response_id
    if name is None:
        return []
    previous = store.get(tenant, name, "previous_response_id")
    if previous.running:
        raise bad_request(f"the response {name!r} still runs; wait for it", "previous_response_id")
    return previous.messages


def _blank(model: str, asked: ResponsesRequest, call: ChatCall) -> ResponseObject:
    """The response before anything happened."""
    return ResponseObject(
        id=call.origin.rid,
        created_at=int(time.time()),
        model=model,
        status="queued" if asked.background else "in_progress",
        output=[],
        background=bool(asked.background),
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata or {},
        parallel_tool_calls=call.tools.parallel,
        previous_response_id=asked.previous_response_id,
        reasoning=asked.reasoning,
        store=asked.store is not False,
        temperature=call.sampling.temperature,
        text={"format": {"type": "text"}, **(asked.text or {})},
        tool_choice="auto" if asked.tool_choice is None else asked.tool_choice,
        tools=asked.tools or [],
        top_logprobs=asked.top_logprobs or 0,
        top_p=call.sampling.top_p,
    )


def _check_place(service: Service, store: ResponseStore[ResponseRun]) -> None:
    """ApiError 503 where as many run in the background as calls may be answered at once."""
    most = service.config.max_concurrent_requests
    if store.running >= most:
        text = f"{most} responses run in the background (--max-concurrent-requests)"
        raise unavailable(text, "too_many_calls", service.retry_after)


async def get_response(request: Request) -> Response:
    """A stored response, or the events of one that runs or ran in the background."""
    service: Service = request.app.state.service
    run = _of(request)
    stream, after = _reading(request)
    if not stream:
        return json_response(run.response)
    if run.events is None:
        raise bad_request(
            f"the response {run.origin.rid!r} has no events; create it with background: true and"
            " stream: true",
            "stream",
        )
    if service.draining and run.running:
        raise unavailable("the server is shutting down", "shutting_down")
    return EventStream(run.follow(after))


def _reading(request: Request) -> tuple[bool, int]:
    """Whether to stream, and after which event. ApiError 400 names a parameter."""
    given = request.query_params
    for name, value in given.items():
        if name == "include_obfuscation" and _TRUTH.get(value) is False:
            continue
        if name not in ("stream", "starting_after"):
            text = f"the parameter {name} is not supported; known are stream and starting_after"
            raise bad_request(text, name, "not_supported")
    stream = given.get("stream", "false")
    if stream not in _TRUTH:
        raise bad_request(f"stream is {stream!r}; use true or false", "stream")
    after = given.get("starting_after", "-1")
    if not (after == "-1" or (after.isdecimal() and len(after) < 10)):
        text = f"starting_after is {after!r}; it is the sequence_number of an event"
        raise bad_request(text, "starting_after")
    if "starting_after" in given and not _TRUTH[stream]:
        raise bad_request("starting_after needs stream=true", "starting_after")
    return _TRUTH[stream], int(after)


async def cancel_response(request: Request) -> Response:
    """End a background response; one that has ended stays as it is."""
    run = _of(request)
    if not run.response.background:
        text = f"the response {run.origin.rid!r} was not created with background: true"
        raise bad_request(text, "id", "not_in_background")
    await run.cancel()
    return json_response(run.response)


async def delete_response(request: Request) -> Response:
    """Forget a response; one that runs is ended first."""
    run = _of(request)
    await run.cancel()
    _store(request).drop(run.origin.tenant, run.origin.rid)
    return json_response(ResponseDeleted(id=run.origin.rid))


def _of(request: Request) -> ResponseRun:
    name = str(request.path_params["id"])
    return _store(request).get(caller_of(request).tenant, name)


def _store(request: Request) -> ResponseStore[ResponseRun]:
    store: ResponseStore[ResponseRun] = request.app.state.responses
    return store
