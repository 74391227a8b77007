"""The proxy, an ASGI application: what comes goes on unchanged, both ways, piece by piece."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from starlette.types import Message, Receive, Send

from anychip import wrong_scheme
from anychip.address import server_url
from anychip.bench.load.client import CONNECT_S, import_aiohttp
from anychip.http.errors import ApiError
from anychip.http.event_edge import EventEdge
from anychip.http.http_protocol import break_off
from anychip.http.relay import Answer, BadGateway, BrokenOff, Passed, Relay, kept, whole_body
from anychip.http.stream import ClientGone, until_gone
from anychip.http.upgrade import refused_upgrade
from anychip.record.lines import Privacy, Salt
from anychip.record.writer import RecordWriter

from .noting import Note, is_recorded

log = logging.getLogger("anychip.record")

MOST_BYTES = 256 << 20
"""Of a request's body, which is held until it is whole."""


class RecordingProxy:
    """Passes on and records; `async with` opens and closes its connections.

    upstream: address of the server behind, with or without /v1. began: time.monotonic when the
    record did. Raises ConfigError for what is no address, LoadError without aiohttp.
    """

    def __init__(
        self, upstream: str, writer: RecordWriter, privacy: Privacy, started: float, began: float
    ) -> None:
        parts = server_url(upstream, "--upstream")
        base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        # Clients name /v1 themselves.
        self.upstream = base.removesuffix("/v1")
        self._writer, self._privacy = writer, privacy
        self._started, self._began = started, began
        self._salt = Salt(secrets.token_bytes(32))
        self._relay = Relay(import_aiohttp(), CONNECT_S, resends=True)
        self._serial = 0

    async def __aenter__(self) -> RecordingProxy:
        await self._relay.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._relay.__aexit__(*error)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One call, from its first byte to its last; it ends where its client leaves."""
        refused = refused_upgrade(scope["headers"])
        if refused is not None:
            await refused.response(scope["path"])(scope, receive, send)
            return
        body = await whole_body(receive, MOST_BYTES)
        if body is None:
            return  # the client left before it had asked
        if len(body) > MOST_BYTES:
            text = f"the body is longer than {MOST_BYTES:,} bytes, which this proxy holds"
            await _refuse(send, 413, text)
            return
        with suppress(ClientGone):
            if not await until_gone(receive, self._pass(scope, body, send)):
                await break_off(scope, receive)

    async def _pass(self, scope: Message, body: bytes, send: Send) -> bool:
        """Whether the answer came to an end, be it an error that says why it is not whole."""
        note = self._note(scope, body)
        error: str | None = "abort"
        try:
            await self._ask(scope, body, send, note)
            error = None
            return True
        except BadGateway as failure:
            error = "connect"
            place = urlsplit(self.upstream)
            why = await asyncio.to_thread(wrong_scheme.told, place, failure, "--upstream")
            log.warning("%s %s: not passed on: %s", scope["method"], scope["path"], why)
            await _refuse(send, 502, why)
            return True
        except _Cut as cut:
            error = "cut"
            log.warning("%s %s: broken off: %s", scope["method"], scope["path"], cut)
            return cut.told
        finally:
            if note is not None:
                note.ended(error)
                self._writer.put(lambda: note.line(self._started, self._privacy, self._salt))

    def _note(self, scope: Message, body: bytes) -> Note | None:
        if not is_recorded(scope["method"], scope["path"]):
            return None
        self._serial += 1
        return Note(self._serial, scope["path"], body, self._began)

    async def _ask(self, scope: Message, body: bytes, send: Send, note: Note | None) -> None:
        """Raises BadGateway before anything was answered, _Cut later."""
        async with self._relay.ask(self._passed(scope, body)) as answer:
            if note is not None:
                encoding = answer.header("Content-Encoding").lower()
                note.answers(answer.status, answer.header("Content-Type"), encoding)
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status,
                    "headers": answer.headers,
                }
            )
            edge = EventEdge() if _may_end_in_an_event(answer) else None
            try:
                async for data in answer.pieces():
                    if note is not None:
                        note.piece(data)
                    ready = data if edge is None else edge.feed(data)
                    if ready:
                        await send({"type": "http.response.body", "body": ready, "more_body": True})
            except BrokenOff as failure:
                if edge is not None:
                    told = ApiError(502, _said(failure), type="proxy_error", code="upstream_lost")
                    rest = edge.failed(scope["path"], told)
                    await send({"type": "http.response.body", "body": rest})
                raise _Cut(str(failure), told=edge is not None) from failure
            rest = b"" if edge is None else edge.rest()
            await send({"type": "http.response.body", "body": rest})

    def _passed(self, scope: Message, body: bytes) -> Passed:
        target = scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("ascii")
        return Passed(scope["method"], self.upstream, target, kept(scope["headers"]), body)


class _Cut(Exception):
    """The server behind did not end its answer. told: a last event says so to the client; whoever
    gets no events has to see it by the connection, which ends too."""

    def __init__(self, text: str, *, told: bool) -> None:
        super().__init__(text)
        self.told = told


def _may_end_in_an_event(answer: Answer) -> bool:
    """Of ours, behind those that came: readable events, and nobody has said how many bytes."""
    events = answer.header("Content-Type").lower().startswith("text/event-stream")
    return events and not (answer.header("Content-Encoding") or answer.header("Content-Length"))


def _said(text: object) -> str:
    return f"recording proxy: {text}"


async def _refuse(send: Send, status: int, text: str) -> None:
    """An error of the proxy's own, in the form of OpenAI's."""
    error = {"message": _said(text), "type": "proxy_error"}
    body = msgspec.json.encode({"error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def moment() -> tuple[float, float]:
    """Unix time and time.monotonic of now."""
    return time.time(), time.monotonic()
