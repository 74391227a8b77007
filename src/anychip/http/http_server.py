"""uvicorn as our programs run it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


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
