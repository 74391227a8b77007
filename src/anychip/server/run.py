"""`serve`: start the engine, answer HTTP, drain on SIGTERM.

The engine takes longest to start, so its process is started before HTTP and the tokenizer are
imported, which a thread does meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import uvloop

from anychip.config import ServeConfig
from anychip.engine.client import DEFAULT_BUILDER, EngineClient, EngineUnavailable
from anychip.engine.messages import StartError
from anychip.engine.supervisor import EngineState, RestartPolicy
from anychip.request import FinishReason, Request, SamplingParams
from anychip.server.exposure import exposures
from anychip.server.keys import Access, open_access
from anychip.server.listening import bind
from anychip.server.stop import Stop
from anychip.server.tls import open_tls
from anychip.signals import STOPPED, Ending, answered

if TYPE_CHECKING:
    from anychip.server.service import Service
    from anychip.text.chat import ChatTemplate
    from anychip.text.tokenizer import Tokenizer

__all__ = ["Stop", "run_server", "serve"]

log = logging.getLogger("anychip.server")

_CLOSE_S = 10.0


def serve(config: ServeConfig, builder: str = DEFAULT_BUILDER) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    0: ended as asked. 1: could not start (the log says why), or the engine had failed for good.
    builder: "module:function" that builds the engine in its process.
    """
    _set_up_log(config.log_level)
    try:
        with bind(config.host, config.port) as listening, answered() as ending:
            return uvloop.run(_serve_until_signal(config, builder, listening, ending))
    except (StartError, EngineUnavailable) as error:
        log.critical("cannot start: %s", error)
        return 1


def _set_up_log(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)-8s %(name)s: %(message)s"
    )
    # Its start-up lines repeat ours; with "debug" they are wanted.
    logging.getLogger("uvicorn").setLevel("DEBUG" if level == "debug" else "WARNING")


async def _serve_until_signal(
    config: ServeConfig, builder: str, listening: socket.socket, ending: Ending
) -> int:
    stop, loop, code = Stop(), asyncio.get_running_loop(), 1
    ending.react = lambda number: loop.call_soon_threadsafe(stop)
    try:
        code = await run_server(config, listening, stop, builder=builder)
        return code
    finally:
        ending.finish(code)


async def run_server(
    config: ServeConfig,
    listening: socket.socket,
    stop: Stop,
    *,
    builder: str = DEFAULT_BUILDER,
    policy: RestartPolicy | None = None,
    on_ready: Callable[[Service], None] | None = None,
) -> int:
    """Everything between a bound socket and the exit code. Raises StartError.

    Call it in the thread that lives as long as the server: the engine process dies with it.
    """
    access, tls = open_access(config), open_tls(config)
    for warning in exposures(config, access.needed):
        log.warning("%s", warning)
    client = EngineClient(config, builder, policy=policy)
    service: Service | None = None
    try:
        service = await _open(config, client, stop, access)
        if service is None or stop.asked.is_set():
            log.info("stopped while starting")
            return STOPPED
        from anychip.server.answering import answer_http

        await answer_http(service, listening, stop, on_ready, tls)
        return 1 if client.state is EngineState.FAILED else STOPPED
    finally:
        await client.close(0 if stop.urgent.is_set() else _CLOSE_S)
        if service is not None:
            service.close()


async def _open(
    config: ServeConfig, client: EngineClient, stop: Stop, access: Access
) -> Service | None:
    """Engine and tokenizer, ready to use; None where the server was stopped meanwhile."""
    starting = asyncio.ensure_future(client.start())
    reading = asyncio.ensure_future(asyncio.to_thread(_import_and_read, config))
    stopping = asyncio.ensure_future(stop.asked.wait())
    tasks: list[asyncio.Future[Any]] = [starting, reading, stopping]
    try:
        while not (starting.done() and reading.done()):
            await asyncio.wait(
                [task for task in tasks if not task.done()],
                return_when=asyncio.FIRST_COMPLETED,
            )
            if stopping.done():
                return None
            _raise_failure(reading, starting)
    finally:
        for task in tasks:
            task.cancel()
    from anychip.server.service import Service

    tokenizer, template = reading.result()
    service = Service(config, client, tokenizer, template, access)
    if not config.skip_server_warmup:
        await _try_out(client)
    return service


def _import_and_read(config: ServeConfig) -> tuple[Tokenizer, ChatTemplate]:
    """Open tokenizer and template, then import HTTP. StartError says what is wrong.

    In this order the memory that opening a tokenizer takes for a moment is used by what follows.
    """
    from anychip.server.service import open_text

    text = open_text(config)
    import anychip.server.answering  # noqa: F401 (the imports of `run_server` find it loaded)

    return text


def _raise_failure(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _try_out(client: EngineClient) -> None:
    """A prefill and a decode, so that the first client does not pay for first times."""
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
    request = Request(id="trial", prompt=(0,), params=params)
    async with aclosing(client.generate(request)) as outputs:
        async for output in outputs:
            if output.finish is FinishReason.ERROR:
                hint = f"anychip conform --backend {client.info.backend} --level operators"
                raise StartError(f"the trial request failed: {output.error}; next: {hint}")
