"""A client that sends calls to an OpenAI-compatible server and tells when each piece came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from anychip import wrong_scheme
from anychip.address import server_url
from anychip.http.reuse import Attempt, noting_reuse

from .calls import Answer, Call, Failure, LoadError
from .events import Stream, refusal

if TYPE_CHECKING:
    import aiohttp

INSTALL = "pip install 'anychip[bench]'"
CONNECT_S, SILENT_S = 30.0, 600.0
"""How long a server may take to accept, and between two pieces: a prompt may wait in a queue."""
ASK_S = 60.0
"""How long it may take to answer a question about itself: a look at its stacks takes up to 30 s."""
_MAX_BODY = 1 << 16

_HINTS = {
    401: "; put the key into ANYCHIP_API_KEY",
    403: "; put a key that may do so into ANYCHIP_API_KEY",
    404: "; is this the address of an OpenAI-compatible server? /v1 is added where it is missing",
}

Clock = Callable[[], float]
"""Seconds that never go back."""


def base_url(url: str) -> str:
    """The address with its /v1, whether it was given with it or not. Raises ConfigError."""
    parts = server_url(url)
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path if path.endswith('/v1') else path + '/v1'}"


class LoadClient:
    """Sends calls, each over a connection of the pool; `async with` opens and closes it.

    url: with or without /v1. clock: what the times of answers are told by. silent_s: so long may a
    server say nothing in an answer; ask_s: so long may it take to tell of itself. Raises
    ConfigError for what is no address, LoadError without aiohttp.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        silent_s: float = SILENT_S,
        ask_s: float = ASK_S,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.url, self.base, self.model, self.clock = url, base_url(url), model, clock
        self._key, self._silent_s, self._ask_s = key, silent_s, ask_s
        self._aiohttp = import_aiohttp()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> LoadClient:
        aiohttp = self._aiohttp
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=self._silent_s
        )
        # No limit: a client that queues calls by itself would turn an open loop into a closed one.
        # Servers close idle connections after 5 s and more; one that they just closed is no use.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            timeout=timeout,
            trace_configs=[noting_reuse(aiohttp)],
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, call: Call, start: float, scheduled_s: float) -> Answer:
        """The answer, good or not; nothing a server does raises.

        start: of the load, by the client's clock. scheduled_s: when the call was due, from there.
        """
        stream = Stream()
        body = msgspec.json.encode(call.body(self.model))
        sent = self.clock() - start
        failure = await self._stream(call.path, body, stream, start)
        return Answer(
            id=call.id,
            scheduled_s=scheduled_s,
            sent_s=sent,
            end_s=self.clock() - start,
            asked_tokens=call.max_tokens,
            failure=failure,
            **stream.seen,
        )

    async def _stream(self, path: str, body: bytes, stream: Stream, start: float) -> Failure | None:
        """Read the answer into `stream`; what was wrong with it. A connection that the server has
        just closed is not the answer's fault: the call is sent again."""
        while True:
            attempt = Attempt()
            failure = await self._try(path, body, stream, start, attempt)
            if failure is None or not attempt.is_worth_another or failure.kind == "timeout":
                return failure

    async def _try(
        self, path: str, body: bytes, stream: Stream, start: float, attempt: Attempt
    ) -> Failure | None:
        aiohttp = self._aiohttp
        try:
            return await self._read(path, body, stream, start, attempt)
        except asyncio.TimeoutError as error:  # the builtin only since Python 3.11
            return Failure(kind="timeout", text=str(error) or f"silent for {self._silent_s:g} s")
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError) as error:
            return Failure(kind="connect", text=wrong_scheme.plain(error))
        except (aiohttp.ClientError, OSError) as error:
            return Failure(kind="cut", text=str(error) or type(error).__name__)

    async def _read(
        self, path: str, body: bytes, stream: Stream, start: float, attempt: Attempt
    ) -> Failure | None:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        asked = self._open.post(
            self.base + path, data=body, headers=headers, trace_request_ctx=attempt
        )
        async with asked as response:
            attempt.answered = True
            if response.status != 200:
                return refusal(response.status, await response.content.read(_MAX_BODY))
            if response.content_type != "text/event-stream":
                return Failure(kind="no stream", text=f"no events, but {response.content_type}")
            async for data in response.content.iter_any():
                stream.feed(data, self.clock() - start)
        return stream.verdict()

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open; use it with `async with`")
        return self._session

    async def get(self, path: str, *, beside: bool = False) -> bytes:
        """What another endpoint answers, such as /models; beside: of the server's root, not of
        its /v1. Raises LoadError where it is no good answer."""
        return await self._ask("GET", path, None, beside)

    async def post(self, path: str, fields: object, *, beside: bool = False) -> bytes:
        """The same with a JSON body."""
        return await self._ask("POST", path, msgspec.json.encode(fields), beside)

    async def _ask(self, method: str, path: str, data: bytes | None, beside: bool) -> bytes:
        place = (self.base.removesuffix("/v1") if beside else self.base) + path
        asked: dict[str, Any] = {"data": data, "headers": {"Content-Type": "application/json"}}
        asked["timeout"] = self._aiohttp.ClientTimeout(total=self._ask_s)
        try:
            async with self._open.request(method, place, **asked) as response:
                body: bytes = await response.content.read()
        except asyncio.TimeoutError as error:
            raise LoadError(f"{place}: no answer within {self._ask_s:g} s") from error
        except (self._aiohttp.ClientError, OSError) as error:
            why = await asyncio.to_thread(wrong_scheme.told, urlsplit(self.url), error)
            raise LoadError(f"{place}: {why}") from error
        if response.status != 200:
            found = refusal(response.status, body)
            hint = _HINTS.get(response.status, "")
            raise LoadError(f"{place}: HTTP {found.status}: {found.text}{hint}", response.status)
        return body


def import_aiohttp() -> Any:
    """The package, an extra: who only serves does not need it. Raises LoadError."""
    try:
        import aiohttp
    except ModuleNotFoundError as error:
        raise LoadError(f"loading a server needs aiohttp: {INSTALL}") from error
    return aiohttp
