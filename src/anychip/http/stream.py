"""Answers while the client is there: server-sent events, and noticing that it has left."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip.http.errors import ApiError, unavailable

DONE = b"data: [DONE]\n\n"

SHORT_WAY = "anychip.part"
"""The extension of a call's scope that sends one more part of a body which has begun. The layers
between see heads and ends, which go through `send`: a streamed token need not pass through each."""

SendPart = Callable[[bytes], Awaitable[None]]

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
    return b"data: " + (text if text.isascii() else _one_line(text)) + b"\n\n"


def _one_line(text: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        text = text.replace(raw, escaped)
    return text


def named_event(name: str, body: object) -> bytes:
    """One server-sent event with a name, as `event`."""
    return b"event: " + name.encode() + b"\n" + event(body)


class TextEvents:
    """Events of one stream that differ in one text alone: the rest of them is encoded once.

    event_of: the event with a text in it.
    """

    def __init__(self, event_of: Callable[[str], bytes]) -> None:
        mark = uuid.uuid4().hex  # which is nowhere else in the event
        self._head, self._tail = event_of(mark).split(_encoder.encode(mark))

    def event(self, text: str) -> bytes:
        """The event with this text, as `event_of` would have made it."""
        told = _encoder.encode(text)
        return self._head + (told if told.isascii() else _one_line(told)) + self._tail


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

    ping: sent each time that there was no event for `quiet_s` seconds, once there was one.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], *, ping: bytes = b"", quiet_s: float = 0.0
    ) -> None:
        super().__init__()
        self._events = events
        self._ping, self._quiet_s = ping, quiet_s
        self._sent = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or stop where the client leaves."""
        try:
            await until_gone(receive, self._send_all(scope, receive, send))
        except ClientGone:
            return

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        part, begun = _part_of(scope, send), False
        try:
            async with aclosing(self._events) as events, self._pinging(part):
                async for data in events:
                    if not begun:
                        await send(_START)
                        begun = True
                    if self._ping:
                        self._sent = time.monotonic()
                    await part(data)
        except ApiError as error:
            if not begun:
                await error.response(scope["path"])(scope, receive, send)
                return
            error.note()
            await part(event(error.envelope()))
        if not begun:  # there was no event to tell
            await send(_START)
        await send({"type": "http.response.body", "body": b""})

    @asynccontextmanager
    async def _pinging(self, part: SendPart) -> AsyncGenerator[None, None]:
        """Ping beside what is sent: a task and a timer for a stream, not for each event."""
        if not self._ping:
            yield
            return
        pinging = asyncio.ensure_future(self._ping_on(part))
        try:
            yield
        finally:
            await _stop(pinging)

    async def _ping_on(self, part: SendPart) -> None:
        while True:
            quiet_s = time.monotonic() - self._sent if self._sent else 0.0
            await asyncio.sleep(self._quiet_s - quiet_s)
            if self._sent and time.monotonic() - self._sent >= self._quiet_s:
                self._sent = time.monotonic()
                await part(self._ping)


def _part_of(scope: Scope, send: Send) -> SendPart:
    """The short way out for a part of a body (`SHORT_WAY`); through all layers where none is."""
    short: SendPart | None = scope.get("extensions", {}).get(SHORT_WAY)
    if short is not None:
        return short

    async def part(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    return part
