"""Answers while the client is there: server-sent events, and noticing that it has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip.http.errors import ApiError, unavailable

DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect what is streamed
]

_LINE_ENDS = tuple(
    (character.encode(), f"\\u{ord(character):04x}".encode()) for character in "\x85\u2028\u2029"
)

_START = {"type": "http.response.start", "status": 200, "headers": _HEADERS}

_T = TypeVar("_T")
_encoder = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


def event(body: object) -> bytes:
    """One server-sent event with a JSON body.

    Characters that Unicode counts as ends of lines are escaped: many clients split at them, though
    an event stream does not.
    """
    text = _encoder.encode(body)
    if not text.isascii():
        for raw, escaped in _LINE_ENDS:
            text = text.replace(raw, escaped)
    return b"data: " + text + b"\n\n"


def named_event(name: str, body: object) -> bytes:
    """One server-sent event with a name, as `event`."""
    return b"event: " + name.encode() + b"\n" + event(body)


async def with_pauses(
    events: AsyncGenerator[_T, None], quiet_s: float
) -> AsyncGenerator[_T | None, None]:
    """The events, and None each time that none came for `quiet_s` seconds."""
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(_next(events))
            try:
                while not (await asyncio.wait({coming}, timeout=quiet_s))[0]:
                    yield None
                found = coming.result()
            finally:
                await _stop(coming)
            if not found:
                return
            yield found[0]


async def _next(events: AsyncGenerator[_T, None]) -> tuple[()] | tuple[_T]:
    """The next event, nothing at the end."""
    async for event in events:
        return (event,)
    return ()


async def until_gone(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`; cancelled, and ClientGone raised, once the client has left."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        await _stop(working, leaving)


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def json_answer(request: Request, work: Coroutine[Any, Any, object]) -> Response:
    """The JSON of what `work` returns; `work` is cancelled when the client leaves."""
    try:
        body = await until_gone(request.receive, work)
    except ClientGone:
        return Response(status_code=499)  # nobody reads it
    return json_response(body)


def json_response(body: object) -> Response:
    """The JSON of a body that is there already."""
    return Response(_encoder.encode(body), media_type="application/json")


class CutAtTheEnd:
    """ASGI layer: a call that the end of the server cuts is answered 503, or ends where it is.

    uvicorn cancels what is left then, as a body that never became complete; let through, the
    cancellation would be logged as a crash.
    """

    def __init__(self, app: ASGIApp, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        begun = False

        async def noticing(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noticing)
        except asyncio.CancelledError:
            if not self._draining():
                raise
            if not begun:
                error = unavailable("the server is shutting down", "shutting_down")
                await error.response(scope["path"])(scope, receive, send)


class EventStream(Response):
    """Streams events. An ApiError before the first becomes a plain error answer; a later one an
    error event with no [DONE] after it. When the client leaves, the events' iterator is closed.
    """

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or stop where the client leaves."""
        try:
            await until_gone(receive, self._send_all(scope, receive, send))
        except ClientGone:
            return

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        try:
            async with aclosing(self._events) as events:
                async for data in events:
                    if not begun:
                        await send(_START)
                        begun = True
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except ApiError as error:
            if not begun:
                await error.response(scope["path"])(scope, receive, send)
                return
            error.note()
            failed = event(error.envelope())
            await send({"type": "http.response.body", "body": failed, "more_body": True})
        if not begun:  # there was no event to tell
            await send(_START)
        await send({"type": "http.response.body", "body": b""})
