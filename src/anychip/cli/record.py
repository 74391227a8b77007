"""`anychip record --upstream URL`: a proxy before any OpenAI-compatible server that records."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.config import ConfigError, FlagParser, own_values, parse
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    import socket

    from anychip.bench.proxy.passing import RecordingProxy
    from anychip.record.writer import RecordWriter

_GROUP = "record"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What is recorded, and where."""

    upstream: str | None = declared(
        None, Flag(("--upstream",), _GROUP, "server to pass calls on to", "URL")
    )
    out: str | None = declared(None, Flag(("--out",), _GROUP, "file for the record", "FILE"))
    host: str = declared("127.0.0.1", Flag(("--host",), _GROUP, "address to listen on", "ADDRESS"))
    port: int = declared(
        30001, Flag(("--port",), _GROUP, "port to listen on, 0: any free one", low=0, high=65535)
    )
    privacy: str = declared(
        "text",
        Flag(
            ("--privacy",),
            _GROUP,
            "what is kept of prompts and answers; lengths: no content",
            "LEVEL",
            choices=("text", "lengths"),
        ),
    )
    max_bytes: int = declared(
        2**30,
        Flag(
            ("--max-bytes",),
            _GROUP,
            "a longer record becomes FILE.1 and a new one begins",
            low=4096,
            high=2**50,
        ),
    )
    keep: int = declared(
        4, Flag(("--keep",), _GROUP, "older parts of the record that stay", low=0, high=1000)
    )


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip record",
        "Stand before an OpenAI-compatible server, pass every call on unchanged, and record those"
        " of /v1/completions and /v1/chat/completions for `anychip replay`. Ctrl-C and SIGTERM end"
        " it with exit code 0.",
    )
    add_flags(parser, RecordOptions)
    parser.show_examples(
        "anychip record --upstream http://127.0.0.1:8000 --out record.jsonl",
        "anychip record --upstream https://HOST --port 9000 --out record.jsonl --privacy lengths",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Pass on and record until told to end."""
    _, namespace = parse(add_arguments(), argv)
    options = RecordOptions(**own_values(RecordOptions, namespace))
    upstream, out = _given("upstream", options.upstream), _given("out", options.out)
    logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel("WARNING")
    from anychip.bench.load.calls import LoadError
    from anychip.http.listening import bind

    with bind(options.host, options.port) as listening:
        _refuse_itself(upstream, options.host, listening)
        try:
            writer, proxy = _open(options, upstream, Path(out).expanduser())
        except LoadError as error:
            raise ConfigError(str(error)) from error
        try:
            asyncio.run(_serve(proxy, listening, options))
        finally:
            writer.close()
    counts = writer.counts
    print(f"anychip: {counts.written} requests recorded, {counts.lost} lost", file=sys.stderr)
    return 0


def _refuse_itself(upstream: str, host: str, listening: socket.socket) -> None:
    """Raise ConfigError where calls would be passed on to this proxy, without end."""
    from anychip.address import server_url

    parts = server_url(upstream, "--upstream")
    bound, port = listening.getsockname()[:2]
    names = {host, bound}
    if bound in ("127.0.0.1", "::1"):
        names.add("localhost")
    elif bound in ("0.0.0.0", "::"):
        names |= {"localhost", "127.0.0.1", "::1"}
    if parts.hostname in names and (parts.port or 80) == port:
        raise ConfigError(
            f"--upstream: {upstream} is where this proxy itself listens; name the server behind "
            "it, or another --port"
        )


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise ConfigError(f"--{name}: it is needed; see anychip record --help")
    return value


def _open(options: RecordOptions, upstream: str, path: Path) -> tuple[RecordWriter, RecordingProxy]:
    from anychip.bench.proxy.passing import RecordingProxy, moment
    from anychip.record.lines import FORMAT, VERSION, Header, Privacy, RecordError
    from anychip.record.writer import RecordWriter, check_place

    privacy: Privacy = "lengths" if options.privacy == "lengths" else "text"
    started, began = moment()
    header = Header(format=FORMAT, version=VERSION, started=started, privacy=privacy, by="proxy")
    try:
        check_place(path)
        writer = RecordWriter(path, header, max_bytes=options.max_bytes, keep=options.keep)
    except RecordError as error:
        raise ConfigError(f"--out: {error}") from error
    try:
        return writer, RecordingProxy(upstream, writer, privacy, started, began)
    except BaseException:
        writer.close()
        raise


async def _serve(proxy: RecordingProxy, listening: socket.socket, options: RecordOptions) -> None:
    from anychip.http.http_server import HttpServer, configured
    from anychip.http.listening import is_loopback, url_of

    async with proxy:
        server = HttpServer(configured(proxy, dates=False))  # upstream's answers have one
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _end, server)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        starting = asyncio.ensure_future(server.up.wait())
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if not is_loopback(options.host):
            _say(f"LISTENING ON {options.host}: whoever reaches this machine reaches the server")
        if options.privacy == "text":
            _say(f"THE RECORD HOLDS PROMPTS AND ANSWERS ({options.out})")
        _say(f"recording: {url_of(listening)} passes on to {proxy.upstream}")
        await serving


def _end(server: object) -> None:
    """Asked once: no new calls, those that run have 5 s. Asked twice: at once."""
    from anychip.http.http_server import HttpServer

    assert isinstance(server, HttpServer)
    server.force_exit = server.should_exit
    server.should_exit = True


def _say(text: str) -> None:
    print(f"anychip: {text}", file=sys.stderr, flush=True)
