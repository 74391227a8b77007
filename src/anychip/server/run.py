"""`serve`: start the engine, answer HTTP, drain on SIGTERM.

The engine takes longest to start: its process is there before flags are read (`cli/serve.py`), and
is told what to do before HTTP and the tokenizer are imported, which a thread does meanwhile.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anychip import collecting
from anychip.config import ServeConfig
from anychip.engine.client import DEFAULT_BUILDER, EngineClient, EngineUnavailable
from anychip.engine.messages import StartError
from anychip.engine.spawn import Spawned
from anychip.engine.supervisor import EngineState
from anychip.http.descriptors import make_room
from anychip.http.keys import open_access
from anychip.http.log_setup import set_up_log
from anychip.http.serving import serve_until_signal
from anychip.http.stop import Stop
from anychip.http.tls import open_tls
from anychip.server.exposure import exposures
from anychip.server.opening import Reading, open_service
from anychip.server.profile_place import check_profiles
from anychip.server.record_place import check_record
from anychip.server.telling import open_telling
from anychip.signals import STOPPED

if TYPE_CHECKING:
    from anychip.server.service import Service
    from anychip.text.chat import ChatTemplate
    from anychip.text.tokenizer import Tokenizer

log = logging.getLogger("anychip.server")

_CLOSE_S = 10.0


def serve(
    config: ServeConfig, builder: str = DEFAULT_BUILDER, spawned: Spawned | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    0: ended as asked. 1: could not start (the log says why), or the engine had failed for good.
    builder: "module:function" that builds the engine in its process. spawned: see `EngineClient`.
    """
    set_up_log(config.log_level, as_json=config.log_format == "json")
    for warning in make_room(config.max_concurrent_requests):
        log.warning("%s", warning)
    try:
        client = EngineClient(config, builder, spawned=spawned)
        return serve_until_signal(config.host, config.port, partial(run_server, config, client))
    except (StartError, EngineUnavailable) as error:
        log.critical("cannot start: %s", error)
        return 1


async def run_server(
    config: ServeConfig,
    client: EngineClient,
    listening: socket.socket,
    stop: Stop,
    *,
    on_ready: Callable[[Service], None] | None = None,
) -> int:
    """Everything between a bound socket and the exit code. Raises StartError.

    Call it in the thread that lives as long as the server: the engine process dies with it.
    """
    access, tls = open_access(config), open_tls(config)
    check_record(config)
    check_profiles(config)
    telling = open_telling(config)
    for warning in exposures(config, access.needed):
        log.warning("%s", warning)
    reading = Reading(lambda: _import_and_read(config))
    service: Service | None = None
    try:
        service = await open_service(config, client, stop.asked, access, reading)
        if service is None or stop.asked.is_set():
            log.info("stopped while starting")
            return STOPPED
        from anychip.server.answering import answer_http

        collecting.resume()
        if telling.tracing is not None:
            client.on_timeline = telling.tracing.on_timeline
        await answer_http(service, listening, stop, on_ready, tls=tls, telling=telling)
        return 1 if client.state is EngineState.FAILED else STOPPED
    finally:
        await client.close(0 if stop.urgent.is_set() else _CLOSE_S)
        reading.end(wait=False)
        if service is not None:
            service.close()
        await telling.close(stop.urgent)


def _import_and_read(config: ServeConfig) -> tuple[Tokenizer, ChatTemplate]:
    """Open tokenizer and template, and import HTTP. StartError says what is wrong.

    In this order the memory that opening a tokenizer takes for a moment is the least, and the
    template's process, which starts meanwhile, is asked when it is there.
    """
    from anychip.server.opening_texts import open_text

    return open_text(config, meanwhile=_import_http)


def _import_http() -> None:
    import anychip.server.answering  # noqa: F401 (the imports of `run_server` find it loaded)
