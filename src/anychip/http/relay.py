"""Passing a call on to a server behind, and its answer back, piece by piece and unchanged."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from starlette.types import Receive

from anychip.http.reuse import Attempt, noting_reuse
from anychip.wrong_scheme import plain

if TYPE_CHECKING:
    import aiohttp

Headers = list[tuple[bytes, bytes]]

_OF_ONE_CONNECTION = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te"
    b" trailer transfer-encoding upgrade".split()
)
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the client would add by itself."""
_MADE_ANEW = (b"host", b"content-length")
_KEPT_OPEN_S = 2.0
"""Servers close idle connections after 5 s and more; one that they just closed is no use."""


class BadGateway(Exception):
    """The server behind gave no answer; the text says why.

    kind: "connect": no connection came about, so it surely knows nothing of the call; "timeout":
    it was silent for too long; "broken": the connection ended, or what came is no HTTP.
    """

    def __init__(self, text: str, kind: Literal["connect", "timeout", "broken"]) -> None:
        super().__init__(text)
        self.kind = kind


class BrokenOff(Exception):
    """The server behind did not end its answer."""


class Passed(NamedTuple):
    """A call as it is passed on. base: address of the server behind, which errors name; target:
    path and query, quoted as they were sent; headers: as `kept` leaves them."""

    method: str
    base: str
    target: str
    headers: Headers
    body: bytes


class Answer:
    """The head of an answer, and its body piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse, relay: Relay, base: str) -> None:
        self._response, self._relay, self._base = response, relay, base
        self.status: int = response.status
        self.headers: Headers = kept(response.raw_headers)

    def header(self, name: str) -> str:
        """A header's value; empty where there is none."""
        found: str = self._response.headers.get(name, "")
        return found

    async def pieces(self) -> AsyncIterator[bytes]:
        """What comes, as it comes. No more is read than is taken. Raises BrokenOff."""
        try:
            async for data in self._response.content.iter_any():
                yield data
        except self._relay.errors as error:
            raise BrokenOff(self._relay.told(self._base, error)) from error


class Relay:
    """Connections to servers behind; `async with` opens and closes them.

    client: the package aiohttp, an extra, which who asks has looked for. connect_s: how long a
    server may take to accept; silent_s: how long it may then send nothing, None: its own decision.
    tls: whom to trust behind https, None: as the system does. resends: a call that met an old
    connection which then broke goes out once more, over a new one. Most likely the server had just
    closed it; where it took the call and died, it is taken twice.
    """

    def __init__(
        self,
        client: Any,
        connect_s: float,
        silent_s: float | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        resends: bool = False,
    ) -> None:
        self._client, self._tls, self._resends = client, tls, resends
        self._connect_s, self._silent_s = connect_s, silent_s
        self.errors = (client.ClientError, asyncio.TimeoutError, OSError)
        self._unsent = (client.ClientConnectorError, client.ConnectionTimeoutError)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Relay:
        client = self._client
        self._session = client.ClientSession(
            connector=client.TCPConnector(
                limit=0, keepalive_timeout=_KEPT_OPEN_S, ssl=self._tls or True
            ),
            timeout=client.ClientTimeout(
                total=None, sock_connect=self._connect_s, sock_read=self._silent_s
            ),
            auto_decompress=False,
            cookie_jar=client.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC,
            trace_configs=[noting_reuse(client)],
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(self, call: Passed) -> AsyncIterator[Answer]:
        """The answer; leaving the block before its end closes the connection. Raises BadGateway."""
        response = await self._answered(call)
        try:
            yield Answer(response, self, call.base)
        finally:
            response.close()  # a whole answer has given its connection back by now

    async def _answered(self, call: Passed) -> aiohttp.ClientResponse:
        """Raises BadGateway."""
        while True:
            attempt = Attempt()
            try:
                return await self._send(call, attempt)
            except self.errors as error:
                kind = self._kind(error)
                if self._resends and kind == "broken" and attempt.is_worth_another:
                    continue
                raise BadGateway(self.told(call.base, error), kind) from error

    def _kind(self, error: BaseException) -> Literal["connect", "timeout", "broken"]:
        if isinstance(error, self._unsent):
            return "connect"
        return "timeout" if isinstance(error, asyncio.TimeoutError) else "broken"

    def told(self, base: str, error: BaseException) -> str:
        """An error in words, which some of aiohttp's lack."""
        if isinstance(error, self._client.ClientPayloadError):
            return f"{base}: the connection ended in the middle of the answer"
        return f"{base}: {plain(error)}"

    async def _send(self, call: Passed, attempt: Attempt) -> aiohttp.ClientResponse:
        from multidict import CIMultiDict
        from yarl import URL

        if self._session is None:
            raise RuntimeError("the relay is not open; use it with `async with`")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in call.headers
            if name.lower() not in _MADE_ANEW
        ]
        response: aiohttp.ClientResponse = await self._session.request(
            call.method,
            URL(call.base + call.target, encoded=True),
            data=call.body or None,
            headers=CIMultiDict(headers),
            allow_redirects=False,
            trace_request_ctx=attempt,
        )
        return response


def kept(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers that are not about one connection alone, in their order."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_ONE_CONNECTION]


async def whole_body(receive: Receive, most: int) -> bytes | None:
    """The whole body, or a little over `most` bytes of one that is longer; None where the client
    has left."""
    found = bytearray()
    while len(found) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        found += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(found)
