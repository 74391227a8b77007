"""uvicorn as our programs run it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from anychip.http.http_protocol import HttpProtocol

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
