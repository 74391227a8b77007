"""HTTP: uvicorn on the bound socket, from the first answer to the end of the drain."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

import uvicorn

from anychip.server.app import build_app, route_of
from anychip.server.http_server import HttpServer
from anychip.server.listening import refused, url_of
from anychip.server.observed import Observed
from anychip.server.service import Service
from anychip.server.stop import Stop
from anychip.server.telling import Telling

log = logging.getLogger("anychip.server")

_FLUSH_S = 5
"""How long finished answers may take to reach their clients at the end."""
_POLL_S = 0.02


async def answer_http(
    service: Service,
    listening: socket.socket,
    stop: Stop,
    on_ready: Callable[[Service], None] | None,
    *,
    tls: ssl.SSLContext | None,
    telling: Telling,
) -> None:
    """Answer until asked to stop, then drain. on_ready: called once it is reachable."""
    url = url_of(listening, secure=tls is not None)
    config = uvicorn.Config(
        Observed(build_app(service), telling, route_of),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_FLUSH_S,
    )
    config.load()
    config.ssl = tls
    server = HttpServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.asked.wait())
    try:
        starting = asyncio.create_task(server.up.wait())
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if server.started:
            log.info("ready: %s serves at %s", service.model_name, url)
            if on_ready is not None:
                on_ready(service)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await _drain(service, stop)
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


async def _drain(service: Service, stop: Stop) -> None:
    """Take nothing new; wait for what runs until the deadline, then cut it."""
    service.draining = True
    patience_s = service.config.shutdown_timeout
    if service.live:
        log.info("stopping: %d calls have %g s to finish", len(service.live), patience_s)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while service.live and loop.time() < deadline and not stop.urgent.is_set():
        await asyncio.sleep(_POLL_S)
    cut = service.abort_all()
    if cut:
        log.warning("cut %d calls that were not finished", cut)
    log.info("stopped")
