"""`serve`: start the engine, answer HTTP, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import uvicorn
import uvloop

from anychip.config import ServeConfig
from anychip.engine.client import DEFAULT_BUILDER, EngineClient, EngineUnavailable
from anychip.engine.messages import StartError
from anychip.engine.supervisor import EngineState, RestartPolicy
from anychip.request import FinishReason, Request, SamplingParams
from anychip.server.app import build_app
from anychip.server.listening import bind, exposure, refused, url_of
from anychip.server.service import Service, open_text

log = logging.getLogger("anychip.server")

_FLUSH_S = 5
"""How long finished answers may take to reach their clients at the end."""
_CLOSE_S = 10.0
_POLL_S = 0.02


class Stop:
    """How the server is told to end: once to drain, twice to end at once. Call it to ask."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()

    def __call__(self) -> None:
        """Ask."""
        (self.urgent if self.asked.is_set() else self.asked).set()


def serve(config: ServeConfig, builder: str = DEFAULT_BUILDER) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    0: ended as asked. 1: could not start (the log says why), or the engine had failed for good.
    builder: "module:function" that builds the engine in its process.
    """
    _set_up_log(config.log_level)
    try:
        listening = bind(config.host, config.port)
        with listening:
            return uvloop.run(_serve_until_signal(config, builder, listening))
    except (StartError, EngineUnavailable) as error:
        log.critical("cannot start: %s", error)
        return 1


def _set_up_log(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)-8s %(name)s: %(message)s"
    )
    # Its start-up lines repeat ours; with "debug" they are wanted.
    logging.getLogger("uvicorn").setLevel("DEBUG" if level == "debug" else "WARNING")


async def _serve_until_signal(config: ServeConfig, builder: str, listening: socket.socket) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return await run_server(config, listening, stop, builder=builder)


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
    warning = exposure(config.host, config.api_key)
    if warning:
        log.warning("%s", warning)
    client = EngineClient(config, builder, policy=policy)
    service: Service | None = None
    try:
        service = await _open(config, client, stop)
        if service is not None:
            await _answer(service, listening, stop, on_ready)
        return 1 if client.state is EngineState.FAILED else 0
    finally:
        await client.close(0 if stop.urgent.is_set() else _CLOSE_S)
        if service is not None:
            service.close()


async def _open(config: ServeConfig, client: EngineClient, stop: Stop) -> Service | None:
    """Engine and tokenizer, ready to use; None where the server was stopped meanwhile."""
    starting = asyncio.ensure_future(client.start())
    reading = asyncio.ensure_future(asyncio.to_thread(open_text, config))
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
    tokenizer, template = reading.result()
    service = Service(config, client, tokenizer, template)
    if not config.skip_server_warmup:
        await _try_out(client)
    return service


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


class _HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to us: it would close the port before the drain."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _answer(
    service: Service,
    listening: socket.socket,
    stop: Stop,
    on_ready: Callable[[Service], None] | None,
) -> None:
    config = uvicorn.Config(
        build_app(service),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_FLUSH_S,
    )
    server = _HttpServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.asked.wait())
    try:
        while not (server.started or serving.done()):
            await asyncio.sleep(_POLL_S)
        if server.started:
            log.info("ready: %s serves at %s", service.model_name, url_of(listening))
            if on_ready is not None:
                on_ready(service)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await _drain(service, stop)
    finally:
        stopping.cancel()
        server.should_exit = True
        server.force_exit = stop.urgent.is_set()
        await _ended(serving, url_of(listening))


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
