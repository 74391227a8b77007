"""One connection of a client: uvicorn's protocol, with what it leaves open to be misused closed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anychip.http.errors import ApiError

MAX_HEAD_BYTES = 65536
"""What a client may send, in bytes, that is neither the end of a head nor part of a body."""
HEAD_S = 30.0
"""How long a request's head may take, seconds; a new connection counts as one that begins."""

_CONNECTION = "anychip.connection"
"""The extension of a call's scope by which its connection is closed."""
_REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 alone: whoever asks for another protocol is answered in this one, by the
    application. uvicorn would advise to install a package in the log.

    Heads are bounded in bytes and in time, and every call of a connection that is lost is told.
    """

    head_s = HEAD_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._unclaimed = 0  # bytes that came to nothing yet, the parser keeps them
        self._begun = False  # of a head there is something
        self._earlier: list[Any] = []  # calls before the last one, their answers not complete
        self._patience: asyncio.TimerHandle | None = None
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every call; uvicorn tells the last, which with several at once has not begun yet."""
        self._stop_waiting()
        for call in self._earlier:
            call.disconnected = True
            call.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, within bounds."""
        self._unclaimed += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unclaimed > MAX_HEAD_BYTES:
            self._refuse(431, f"a head is longer than {MAX_HEAD_BYTES:,} bytes; send less in it")
        elif self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()

    def on_message_begin(self) -> None:
        """Let the application close the connection: see `break_off`."""
        super().on_message_begin()
        self._begun = True
        self.scope["extensions"] = {_CONNECTION: {"close": self.transport.close}}

    def on_headers_complete(self) -> None:
        """Keep in mind who is still being answered."""
        self._stop_waiting()
        self._unclaimed, self._begun = 0, False
        before = self.cycle
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            self._earlier = [one for one in self._earlier if not one.response_complete]
            self._earlier.append(before)

    def on_body(self, body: bytes) -> None:
        """What is part of a body is bounded there."""
        self._unclaimed = 0
        super().on_body(body)

    def _unsupported_upgrade_warning(self) -> None:
        # The parser stops behind such a call: another on this connection would never be answered.
        self.cycle.keep_alive = False

    def _wait_for_head(self) -> None:
        self._patience = self.loop.call_later(self.head_s, self._impatient)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _impatient(self) -> None:
        if self.transport.is_closing():
            return
        if self._begun:
            self._refuse(408, f"the head was not complete within {self.head_s:g} s")
        else:  # nothing was asked
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """End the connection; with an answer, where no other one is under way."""
        if self.cycle is None or self.cycle.response_complete:
            body = msgspec.json.encode(ApiError(status, message, code="bad_head").envelope())
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            told = head % (status, _REASONS[status], len(body))
            self.transport.write(told + b"connection: close\r\n\r\n" + body)
        self.logger.warning("a connection is closed: %s", message)
        self.transport.close()


async def break_off(scope: Scope, receive: Receive) -> None:
    """End an answer that has begun and cannot be ended well: the client sees that it is not whole.

    Returns once the connection is closed. Under a server that is not HttpProtocol nothing happens.
    """
    connection = scope.get("extensions", {}).get(_CONNECTION)
    if connection is not None:
        connection["close"]()
        while (await receive())["type"] != "http.disconnect":
            pass
