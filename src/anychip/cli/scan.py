"""`anychip scan`: how throughput grows with requests at once, and what keeps it from growing."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from anychip.cli.output import drawing, report_folder, say
from anychip.config import ConfigError, FlagParser, own_values, parse
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    from anychip.bench.load.served import Served
    from anychip.bench.scan import Plan
    from anychip.bench.scan_found import Found, Level, Lost
    from anychip.bench.server_view import ServerInfo

_GROUP = "scan"
WIDE = 160
"""Columns of a table that no terminal shows."""
MOST_AT_ONCE = 4096
DEFAULT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """Which server, which load, and where the report goes."""

    url: str = declared(
        "http://127.0.0.1:30000",
        Flag(("--url",), _GROUP, "the server, ours or any OpenAI-compatible one", "URL"),
    )
    model: str | None = declared(
        None, Flag(("--model",), _GROUP, "name of the model there [the first it lists]", "NAME")
    )
    concurrency: str = declared(
        "1..64",
        Flag(
            ("--concurrency",),
            _GROUP,
            "requests at once: from..to, doubled each time, or a list such as 1,4,16",
            "LEVELS",
        ),
    )
    seconds: float | None = declared(
        None,
        Flag(
            ("--seconds",),
            _GROUP,
            f"how long a level is loaded [{DEFAULT_SECONDS:g}]",
            "SECONDS",
            low=1,
            high=3600,
        ),
    )
    requests: int | None = declared(
        None,
        Flag(
            ("--requests-per-level",),
            _GROUP,
            "requests of a level in place of --seconds, at least twice its requests at once",
            low=1,
            high=1_000_000,
        ),
    )
    input: int = declared(
        128, Flag(("--input-tokens",), _GROUP, "tokens of each prompt", low=1, high=1_000_000)
    )
    output_tokens: int = declared(
        64, Flag(("--output-tokens",), _GROUP, "tokens of each answer", low=2, high=100_000)
    )
    force: bool = declared(
        False, Flag(("--force",), _GROUP, "scan although the doctor finds the chip not sound")
    )
    output: str | None = declared(
        None, Flag(("--output",), _GROUP, "write scan.md, scan.json and scan.png here", "DIR")
    )
    json: bool = declared(False, Flag(("--json",), _GROUP, "print one JSON object"))

    def __post_init__(self) -> None:
        if self.seconds is not None and self.requests is not None:
            raise ConfigError("--seconds and --requests-per-level: a level has one end; choose one")


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip scan",
        "Load a server with more and more requests at once (a closed loop), tell what each"
        " doubling gains, fit the universal scalability law, and name what saturates where it"
        " flattens. A key for the server, the admin key of one of ours, goes into ANYCHIP_API_KEY."
        " Exit code 1: the server's chip is not sound; 2: the server cannot be loaded, or went"
        " away in a level, which is told and left out; 130: Ctrl-C ended it.",
    )
    add_flags(parser, ScanOptions)
    parser.show_examples(
        "anychip scan --url http://127.0.0.1:30000 --concurrency 1..64 --output out",
        "anychip scan --concurrency 1,8,32 --requests-per-level 100 --input-tokens 1000",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the table and what it comes to, write the report; progress on standard error."""
    config, namespace = parse(add_arguments(), argv)
    options = ScanOptions(**own_values(ScanOptions, namespace))
    from anychip.bench.scan_report import as_json, summary

    plan, asked = _plan(options), _asked(options)
    folder = None if options.output is None else report_folder(options.output)
    from anychip.bench.load.calls import LoadError

    try:
        found, told = _scanned(options, config.api_key, plan)
    except LoadError as error:
        raise ConfigError(str(error)) from error
    asked += told
    if options.json:
        say(as_json(found, asked), end="")
    else:
        _draw(found)
        say("\n".join([*asked, *summary(found)]))
    if folder is not None:  # a disk that is full by now takes the report, not what was seen
        _write(folder, found, asked)
    if found.broken:
        print(f"anychip: the scan ended early: {found.broken}", file=sys.stderr)
        return 2
    if found.interrupted:
        return 130
    return 2 if found.lost else 0


def levels_of(text: str) -> tuple[int, ...]:
    """1..64 doubled each time, or a rising list. Raises ConfigError."""
    wrong = ConfigError(
        f"--concurrency: {text!r} is neither FROM..TO nor a rising list of numbers from 1 to"
        f" {MOST_AT_ONCE}, such as 1..64 or 1,4,16"
    )
    first, dots, last = text.partition("..")
    try:
        found = [int(first), int(last)] if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise wrong from None
    rising = all(a < b for a, b in pairwise(found))
    if not (rising and found[0] >= 1 and found[-1] <= MOST_AT_ONCE):
        raise wrong
    if not dots:
        return tuple(found)
    doubled: list[int] = []
    while (level := found[0] << len(doubled)) < found[1]:
        doubled.append(level)
    return (*doubled, found[1])


def _plan(options: ScanOptions) -> Plan:
    from anychip.bench.scan import Plan

    return Plan(
        levels=levels_of(options.concurrency),
        seconds=options.seconds or DEFAULT_SECONDS,
        requests=options.requests or 0,
        input=options.input,
        output=options.output_tokens,
    )


def _asked(options: ScanOptions) -> list[str]:
    """What is measured, in words."""
    size = f"{options.input} tokens in, {options.output_tokens} out"
    each = f"{options.seconds or DEFAULT_SECONDS:g} s a level"
    if options.requests:
        each = f"{options.requests} requests a level"
    return [f"closed loop at {options.url}: {size}, {each}"]


def _scanned(options: ScanOptions, key: str | None, plan: Plan) -> tuple[Found, list[str]]:
    """What was found, and what is to be said before it. Raises LoadError, NotSound."""
    served, info = asyncio.run(_asked_server(options, key))
    told = [*served.notes, *_soundness(info, options)]
    return asyncio.run(_interruptible(options, key, plan, served.model)), told


async def _asked_server(options: ScanOptions, key: str | None) -> tuple[Served, ServerInfo | None]:
    from anychip.bench.load.calls import LoadError
    from anychip.bench.load.client import LoadClient
    from anychip.bench.load.served import ask_server
    from anychip.bench.server_view import ask_info

    async with LoadClient(options.url, options.model or "", key=key) as client:
        served = await ask_server(client, options.model)
        try:
            return served, await ask_info(client)
        except LoadError:
            return served, None


def _soundness(info: ServerInfo | None, options: ScanOptions) -> list[str]:
    """What the doctor says, in words. Raises NotSound."""
    from anychip.bench.sound import chip_of, examine, soundness

    if info is None:
        return ["the doctor was not asked: this server is not one of ours"]
    config, why = chip_of(info, options.url)
    if config is None:
        return [why]
    print("anychip: the doctor looks at the chip first", file=sys.stderr)
    looks = examine(config, model=False)
    told, _ = soundness(looks, info.engine.device, force=options.force, done="scanned")
    return [told]


async def _interruptible(options: ScanOptions, key: str | None, plan: Plan, model: str) -> Found:
    """Ctrl-C ends the scan; the levels until then are told."""
    from anychip.bench.load.client import LoadClient
    from anychip.bench.scan import Scan

    async def scanned() -> Found:
        async with LoadClient(options.url, model, key=key) as client:
            return await Scan(client, plan, Progress()).run()

    task = asyncio.ensure_future(scanned())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        print("anychip: interrupted before a level was through: nothing to tell", file=sys.stderr)
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class Progress:
    """Lines on standard error."""

    def begins(self, concurrency: int, number: int, of: int, left_s: float) -> None:
        """Which level, and about how long it all takes."""
        left = f", about {left_s:,.0f} s left" if left_s else ""
        line = f"level {number + 1} of {of}: {concurrency} at once{left}"
        print(f"anychip: {line}", file=sys.stderr, flush=True)

    def ended(self, level: Level) -> None:
        """What came out."""
        causes = f"; {', '.join(level.causes)}" if level.causes else ""
        line = f"{level.throughput.value:,.1f} tokens/s{causes}"
        print(f"anychip:   {line}", file=sys.stderr, flush=True)

    def lost(self, level: Lost) -> None:
        """Why, and that it is waited."""
        line = f"LOST: the server went away ({level.why}); waiting until it is ready again"
        print(f"anychip:   {line}", file=sys.stderr, flush=True)


def _draw(found: Found) -> None:
    from rich import box
    from rich.table import Table

    from anychip.bench.scan_report import COLUMNS, rows

    table = Table(*COLUMNS, box=box.SIMPLE, title=f"{found.model}, closed loop")
    for row in rows(found):
        table.add_row(*row)
    with drawing(WIDE) as console:
        console.print(table, markup=False)


def _write(folder: Path, found: Found, asked: Sequence[str]) -> None:
    from anychip.bench.load.client import INSTALL
    from anychip.bench.scan_plot import draw
    from anychip.bench.scan_report import as_json, markdown

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scan.md").write_text(markdown(found, asked), encoding="utf-8")
        (folder / "scan.json").write_text(as_json(found, asked), encoding="utf-8")
        try:
            draw(found, folder / "scan.png")
        except ModuleNotFoundError:
            print(f"anychip: no plot without matplotlib: {INSTALL}", file=sys.stderr)
    except OSError as error:
        raise ConfigError(f"--output: cannot write to {folder}: {error.strerror}") from error
