"""The proxy, an ASGI application: what comes goes on unchanged, both ways, piece by piece."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anychip.address import server_url
from anychip.bench.load.client import CONNECT_S, import_aiohttp
from anychip.bench.load.reuse import Attempt, noting_reuse
from anychip.record.lines import Privacy, Salt
from anychip.record.writer import RecordWriter

from .noting import Note, is_recorded

if TYPE_CHECKING:
    import aiohttp

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("anychip.record")

MOST_BYTES = 256 << 20
"""Of a request's body, which is held until it is whole."""

_OF_ONE_CONNECTION = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te"
    b" trailer transfer-encoding upgrade".split()
)
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the client would add by itself."""


class BadGateway(Exception):
    """The server behind cannot be asked; the text says why."""


class BrokenOff(Exception):
    """The server behind did not end its answer."""


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
        self._aiohttp = import_aiohttp()
        self._session: aiohttp.ClientSession | None = None
        self._serial = 0

    async def __aenter__(self) -> RecordingProxy:
        aiohttp = self._aiohttp
        # The server behind decides how long things take: no limit but that of the connection.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC,
            trace_configs=[noting_reuse(aiohttp)],
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One call, from its first byte to its last; it ends where its client leaves."""
        body = await _body(receive)
        if body is None:
            return  # the client left before it had asked
        if len(body) > MOST_BYTES:
            text = f"the body is longer than {MOST_BYTES:,} bytes, which this proxy holds"
            await _refuse(send, 413, text)
            return
        passing = asyncio.ensure_future(self._pass(scope, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, leaving):
                task.cancel()
            await asyncio.wait({passing, leaving})

    async def _pass(self, scope: Message, body: bytes, send: Send) -> None:
        note = self._note(scope, body)
        error: str | None = "abort"
        try:
            await self._ask(scope, body, send, note)
            error = None
        except BadGateway as failure:
            error = "connect"
            await _refuse(send, 502, str(failure))
        except BrokenOff as failure:
            error = "cut"  # it is broken off for the client as well: nothing ends it
            log.warning("%s %s: broken off: %s", scope["method"], scope["path"], failure)
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
        """Raises BadGateway before anything was answered, BrokenOff later."""
        while True:
            attempt = Attempt()
            try:
                return await self._ask_once(scope, body, send, note, attempt)
            except BadGateway:
                if not attempt.is_worth_another:
                    raise

    async def _ask_once(
        self, scope: Message, body: bytes, send: Send, note: Note | None, attempt: Attempt
    ) -> None:
        try:
            async with self._request(scope, body, attempt) as response:
                attempt.answered = True
                kind = response.headers.get("Content-Type", "")
                if note is not None:
                    encoding = response.headers.get("Content-Encoding", "").lower()
                    note.answers(response.status, kind, encoding)
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status,
                        "headers": _kept(response.raw_headers),
                    }
                )
                async for data in response.content.iter_any():
                    if note is not None:
                        note.piece(data)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (self._aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            text = f"{self.upstream}: {error or type(error).__name__}"
            raise (BrokenOff(text) if attempt.answered else BadGateway(text)) from error

    def _request(self, scope: Message, body: bytes, attempt: Attempt) -> Any:
        from multidict import CIMultiDict
        from yarl import URL

        if self._session is None:
            raise RuntimeError("the proxy is not open; use it with `async with`")
        place = self.upstream + scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            place += "?" + scope["query_string"].decode("ascii")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in _kept(scope["headers"])
            if name.lower() not in (b"host", b"content-length")
        ]
        return self._session.request(
            scope["method"],
            URL(place, encoded=True),
            data=body or None,
            headers=CIMultiDict(headers),
            allow_redirects=False,
            trace_request_ctx=attempt,
        )


def _kept(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers that are not about one connection alone, in their order."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_ONE_CONNECTION]


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or more than is held of it; None where the client has left."""
    found = bytearray()
    while len(found) <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        found += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(found)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, text: str) -> None:
    """An error of the proxy's own, in the form of OpenAI's."""
    error = {"message": f"recording proxy: {text}", "type": "proxy_error"}
    body = msgspec.json.encode({"error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def moment() -> tuple[float, float]:
    """Unix time and time.monotonic of now."""
    return time.time(), time.monotonic()
