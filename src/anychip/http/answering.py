"""uvicorn on a bound socket, from the first answer to the end of the drain."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection

from starlette.types import ASGIApp

from anychip.http.http_server import HttpServer, configured
from anychip.http.listening import refused, url_of
from anychip.http.stop import Stop

_POLL_S = 0.02


async def answer(
    app: ASGIApp,
    listening: socket.socket,
    stop: Stop,
    *,
    tls: ssl.SSLContext | None,
    up: Callable[[str], None],
    drain: Callable[[], Awaitable[None]],
) -> None:
    """Answer until asked to stop, then drain and close.

    up: called with the address once it is reachable. Raises StartError where the address was taken
    meanwhile.
    """
    url = url_of(listening, secure=tls is not None)
    server = HttpServer(configured(app, tls))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.asked.wait())
    try:
        starting = asyncio.create_task(server.up.wait())
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if server.started:
            up(url)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await drain()
    finally:
        stopping.cancel()
        server.should_exit = True
        server.force_exit = stop.urgent.is_set()
        await _ended(serving, url)


async def _ended(serving: asyncio.Task[None], url: str) -> None:
    try:
        await serving
    except OSError as error:  # another process began to listen there after both had bound it
        raise refused(url, error) from error


async def drain(
    live: Collection[object],
    patience_s: float,
    stop: Stop,
    *,
    cut: Callable[[], int],
    log: logging.Logger,
) -> None:
    """Wait for the calls that run until the deadline, then cut what is left.

    live: those calls, as it changes. cut: ends them; how many there were. Who calls this takes
    nothing new any more.
    """
    if live:
        log.info("stopping: %d calls have %g s to finish", len(live), patience_s)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while live and loop.time() < deadline and not stop.urgent.is_set():
        await asyncio.sleep(_POLL_S)
    count = cut()
    if count:
        log.warning("cut %d calls that were not finished", count)
    log.info("stopped")
