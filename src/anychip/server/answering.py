"""A service over HTTP, from the first answer to the end of the drain."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable

from anychip.http.answering import answer, drain
from anychip.http.observed import Observed
from anychip.http.stop import Stop
from anychip.http.telling import Telling
from anychip.server.app import build_app, route_of
from anychip.server.service import Service

log = logging.getLogger("anychip.server")


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
    """Take nothing new, and come to an end."""
    service.draining = True
    patience_s = service.config.shutdown_timeout
    await drain(service.live, patience_s, stop, cut=service.abort_all, log=log)
