"""uvicorn as our programs run it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_CONNECTION = "anychip.connection"
"""The extension of a call's scope by which its connection is closed."""
_FLUSH_S = 5
"""How long finished answers may take to reach their clients at the end."""


class HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to us: it would close the port before the drain.

    up: set once it accepts connections.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when it is done."""
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 alone: whoever asks for another protocol is answered in this one, by the
    application. uvicorn would advise to install a package in the log."""

    def _unsupported_upgrade_warning(self) -> None:
        # The parser stops behind such a call: another on this connection would never be answered.
        self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Let the application close the connection: see `break_off`."""
        super().on_message_begin()
        self.scope["extensions"] = {_CONNECTION: {"close": self.transport.close}}


def configured(
    app: ASGIApp, tls: ssl.SSLContext | None = None, *, dates: bool = True
) -> uvicorn.Config:
    """How each of our programs has uvicorn answer. dates: whether an answer is given its time; not
    where it comes with one."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=dates,
        timeout_graceful_shutdown=_FLUSH_S,
    )
    config.load()
    config.ssl = tls
    return config


async def break_off(scope: Scope, receive: Receive) -> None:
    """End an answer that has begun and cannot be ended well: the client sees that it is not whole.

    Returns once the connection is closed. Under a server that is not HttpProtocol nothing happens.
    """
    connection = scope.get("extensions", {}).get(_CONNECTION)
    if connection is not None:
        connection["close"]()
        while (await receive())["type"] != "http.disconnect":
            pass
