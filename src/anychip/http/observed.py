"""The outermost ASGI layer: gives each call its id and its record, and tells of it at its end."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip.http.auth import caller_in
from anychip.http.call_record import CallRecord, begin_call
from anychip.http.stream import SHORT_WAY
from anychip.http.telling import Telling

_ID = re.compile(r"[!-~]{1,128}")
"""A client's x-request-id that is taken over: it goes into headers and lines of logs."""
_NOT_TRACED = {"/health", "/ready", "/metrics"}
"""Probes, which come every few seconds."""
_EVENTS = b"text/event-stream"

RouteOf = Callable[[Scope], str | None]
"""The pattern of the path that a call was routed by."""


class Observed:
    """ASGI layer around the whole application. Without a log and traces it gives ids alone."""

    def __init__(self, app: ASGIApp, telling: Telling, route_of: RouteOf) -> None:
        self._app = app
        self._access_log, self._tracing = telling.access_log, telling.tracing
        self._route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and tell of the call once it is over, however it ends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = CallRecord(
            request_id=_id_of(headers), method=scope["method"], path=_path_of(scope)
        )
        span = self._span(record, headers)
        begin_call(record)
        watch = _Watch(record, receive, send)
        scope.setdefault("extensions", {})[SHORT_WAY] = watch.part
        try:
            await self._app(scope, watch.receive, watch.send)
        finally:
            self._end(record, scope, span)

    def _span(self, record: CallRecord, headers: Headers) -> Any:
        if self._tracing is None or record.path in _NOT_TRACED:
            return None
        return self._tracing.begin(record, headers)

    def _end(self, record: CallRecord, scope: Scope, span: Any) -> None:
        record.ended = time.monotonic()
        record.caller = caller_in(scope)
        if self._access_log is not None:
            self._access_log.write(record)
        if self._tracing is not None and span is not None:
            self._tracing.end(record, span, self._route_of(scope))


class _Watch:
    """What passes in and out of one call."""

    def __init__(self, record: CallRecord, receive: Receive, send: Send) -> None:
        self._record, self._receive, self._send = record, receive, send

    async def receive(self) -> Message:
        """Count the body; notice that the client has left."""
        message = await self._receive()
        record = self._record
        if message["type"] == "http.request":
            record.bytes_in += len(message.get("body", b""))
        elif record.outcome != "complete":
            record.outcome = "disconnected"
        return message

    async def send(self, message: Message) -> None:
        """Add the call's ids to the head; count the body."""
        record = self._record
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            record.status = message["status"]
            record.stream = any(n == b"content-type" and v.startswith(_EVENTS) for n, v in headers)
            headers.append((b"x-request-id", record.request_id.encode()))
            if record.traceparent is not None:
                headers.append((b"traceresponse", record.traceparent.encode()))
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            record.bytes_out += len(message.get("body", b""))
            if not message.get("more_body", False) and record.outcome != "disconnected":
                record.outcome = "complete"
        await self._send(message)

    async def part(self, data: bytes) -> None:
        """Send one more part of a body that has begun; count it."""
        self._record.bytes_out += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


def _id_of(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"


def _path_of(scope: Scope) -> str:
    """As it was sent: a decoded one may hold ends of lines."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else scope["path"]
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
