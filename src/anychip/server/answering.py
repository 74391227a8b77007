"""A service over HTTP, from the first answer to the end of the drain."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from anychip.http.answering import answer
from anychip.http.observed import Observed
from anychip.http.stop import Stop
from anychip.http.telling import Telling
from anychip.server.app import build_app, route_of
from anychip.server.service import Service

log = logging.getLogger("anychip.server")

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

    def up(url: str) -> None:
        log.info("ready: %s serves at %s", service.model_name, url)
        if on_ready is not None:
            on_ready(service)

    app = Observed(build_app(service), telling, route_of)
    await answer(app, listening, stop, tls=tls, up=up, drain=lambda: _drain(service, stop))


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
