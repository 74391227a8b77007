"""`anychip replay FILE --url URL`: a recorded or published trace, asked again of any server."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.cli.load_flags import LoadOptions, flag
from anychip.cli.output import drawing, report_folder, say
from anychip.config import ConfigError, FlagParser, own_values, parse
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    from anychip.bench.load.replay import Replay, Watcher, Wish

_GROUP = "replay"
_flag = functools.partial(flag, group=_GROUP)
WIDE = 150


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayOptions(LoadOptions):
    """What is asked, when, and what is told of it."""

    url: str | None = declared(None, _flag("--url", "OpenAI-compatible server to ask", "URL"))
    model: str | None = declared(None, _flag("--model", "its name there [the first]", "NAME"))
    closed_loop: int | None = declared(
        None,
        _flag(
            "--closed-loop",
            "N callers that wait for answers, not the trace's times",
            low=1,
            high=4096,
        ),
    )
    exact: bool = declared(
        False, _flag("--exact", "have the recorded tokens answered (serve --allow-exact-replay)")
    )
    free_length: bool = declared(
        False, _flag("--free-length", "let the model end its answers, not the trace")
    )
    prompts: str = declared(
        "ids",
        Flag(
            ("--prompts",),
            _GROUP,
            "how prompts are sent; text: for servers that take no ids",
            "KIND",
            choices=("ids", "text"),
        ),
    )
    vocab: int | None = declared(
        None, _flag("--vocab", "made-up prompts have ids below N [as the server tells]", low=2)
    )
    flush_cache: bool = declared(
        False, _flag("--flush-cache", "empty the server's prefix cache first (POST /flush_cache)")
    )
    output: str | None = declared(
        None, _flag("--output", "write JSON, Markdown, a plot and each answer's times here", "DIR")
    )


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip replay",
        "Ask a trace again of an OpenAI-compatible server: each request at its time, whether those"
        " before are answered or not (an open loop). FILE: what `anychip serve --record` or"
        " `anychip record` wrote, or a trace of Azure's, BurstGPT's or Mooncake's form. A key for"
        " the server goes into ANYCHIP_API_KEY. Ctrl-C ends it and tells what was seen so far. Exit"
        " code 1: nothing was answered, or with --exact an answer was another one; 130: it was"
        " interrupted.",
    )
    parser.add_argument("file", metavar="FILE", help="the trace")
    add_flags(parser, ReplayOptions)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.show_examples(
        "anychip replay record.jsonl --url http://127.0.0.1:30000",
        "anychip replay record.jsonl --url http://127.0.0.1:30000 --exact --speed 2",
        "anychip replay mooncake.jsonl --url URL --scale-input 0.05 --max-output 50 --requests 200",
        "anychip replay azure.csv --url URL --max-input 400 --max-output 50 --slo-ttft 500",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Replay, and tell what was seen."""
    config, namespace = parse(add_arguments(), argv)
    options = ReplayOptions(**own_values(ReplayOptions, namespace))
    from anychip.bench.load.calls import Interrupted, LoadError
    from anychip.cli.replay_progress import progress

    try:
        wish = _wish(Path(namespace.file).expanduser(), options, config.api_key)
        folder = None if options.output is None else report_folder(options.output)
        with progress() as watcher:
            found = asyncio.run(_interruptible(wish, watcher))
    except Interrupted as error:
        print(f"anychip: {error}", file=sys.stderr)
        return 130
    except LoadError as error:
        raise ConfigError(str(error)) from error
    if namespace.json:
        _print_json(found)
    else:
        _draw(found)
    if folder is not None:  # a disk that is full by now takes the report, not what was seen
        _write(found, folder)
    figures = found.figures
    if figures.interrupted:
        return 130
    wrong = found.as_recorded is not None and found.as_recorded < figures.requests
    return 1 if wrong or not figures.succeeded else 0


def _wish(file: Path, options: ReplayOptions, key: str | None) -> Wish:
    from anychip.bench.load.prompts import Shape
    from anychip.bench.load.replay import Wish, refuse_speed

    if not options.url:
        raise ConfigError("--url: name the server to ask, such as http://127.0.0.1:30000")
    wish = Wish(
        file=file,
        url=options.url,
        model=options.model,
        key=key,
        limit=options.requests,
        speed=options.speed,
        closed=options.closed_loop,
        shape=Shape(
            vocab=options.vocab,
            text=options.prompts == "text",
            free_length=options.free_length,
            exact=options.exact,
            scaling=options.scaling(),
        ),
        flush=options.flush_cache,
        slo=options.slo(),
    )
    refuse_speed(wish)
    return wish


async def _interruptible(wish: Wish, watcher: Watcher) -> Replay:
    """Ctrl-C ends the load; what was seen until then is told."""
    from anychip.bench.load.replay import replay

    task = asyncio.ensure_future(replay(wish, watcher))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None  # before anything was sent
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _write(found: Replay, folder: Path) -> None:
    from anychip.bench.load.client import INSTALL
    from anychip.bench.load.plots import draw
    from anychip.bench.load.report import write

    try:
        places = write(found, folder)
        try:
            draw(found, folder / "replay.png")
            places.append(folder / "replay.png")
        except ModuleNotFoundError:
            print(f"anychip: no plot without matplotlib: {INSTALL}", file=sys.stderr)
    except OSError as error:
        raise ConfigError(f"--output: {folder}: {error.strerror or error}") from error
    print(f"anychip: written: {', '.join(map(str, places))}", file=sys.stderr)


def _print_json(found: Replay) -> None:
    import msgspec

    from anychip.bench.load.replay import as_json

    say(msgspec.json.format(msgspec.json.encode(as_json(found)), indent=2).decode())


def _draw(found: Replay) -> None:
    from rich.table import Table
    from rich.text import Text

    from anychip.bench.load.report import HEAD, latency_rows, lines

    with drawing(WIDE) as console:
        for line in lines(found):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        table = Table()
        for name in HEAD:
            table.add_column(name, no_wrap=True)
        for row in latency_rows(found.figures):
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
