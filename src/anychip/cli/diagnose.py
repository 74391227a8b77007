"""`anychip diagnose`: what keeps a running server from being faster, and what to do about it."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.output import drawing, say
from anychip.config import FlagParser, own_values, parse
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    from anychip.bench.diagnose import Finding

_GROUP = "diagnose"
WIDE = 160
"""Columns of lines that no terminal shows."""
_COLOURS = {"fine": "green", "unknown": "yellow", "found": "red"}
_NAME_COLUMNS, _LEAST_COLUMNS = 22, 20
NOT_REACHABLE = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiagnoseOptions:
    """Which server, and for how long it is looked at."""

    url: str = declared(
        "http://127.0.0.1:30000",
        Flag(("--url",), _GROUP, "a running server; one of ours tells most", "URL"),
    )
    seconds: float = declared(
        10.0,
        Flag(
            ("--seconds",),
            _GROUP,
            "how long it is looked at, under its usual load",
            "SECONDS",
            low=0.5,
            high=600,
        ),
    )
    json: bool = declared(False, Flag(("--json",), _GROUP, "print one JSON list"))


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip diagnose",
        "Look at a running server under its load: the device's utilization first, then whether"
        " scheduler or operators are the bottleneck, then pool fragmentation, lock contention,"
        " page migration, hit rate and queue. Of vLLM, SGLang and llama.cpp their metrics are read:"
        " queue, KV memory, prefix cache. The admin key of a server with keys goes into"
        " ANYCHIP_API_KEY. Exit code 1 where something was found, 2 where the"
        " server cannot be asked.",
    )
    add_flags(parser, DiagnoseOptions)
    parser.show_examples(
        "anychip diagnose --url http://127.0.0.1:30000",
        "ANYCHIP_API_KEY=ADMIN_KEY anychip diagnose --seconds 60 --json",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print every look with its evidence; 1 where something was found."""
    config, namespace = parse(add_arguments(), argv)
    options = DiagnoseOptions(**own_values(DiagnoseOptions, namespace))
    from anychip.bench.diagnose import diagnose, see, something_found
    from anychip.bench.load.calls import LoadError
    from anychip.bench.load.client import LoadClient
    from anychip.bench.others import diagnose_other, see_other
    from anychip.bench.server_view import NOT_OURS, NotOurs

    async def seen() -> list[Finding]:
        async with LoadClient(options.url, "", key=config.api_key) as client:
            try:
                return diagnose(await see(client, options.seconds))
            except NotOurs:
                print(f"anychip: {NOT_OURS} but its metrics", file=sys.stderr)
                return diagnose_other(await see_other(client, options.seconds))

    print(f"anychip: looking at it for {options.seconds:g} s", file=sys.stderr)
    try:
        findings = asyncio.run(seen())
    except LoadError as error:
        print(f"anychip: error: {error}", file=sys.stderr)
        return NOT_REACHABLE
    if options.json:
        say(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        _draw(findings)
    return 1 if something_found(findings) else 0


def _draw(findings: Sequence[Finding]) -> None:
    from rich.text import Text

    with drawing(WIDE) as console:
        for finding in findings:
            colour = _COLOURS[finding.verdict]
            for number, line in enumerate(_lines(finding, console.width)):
                first = number == 0
                text = Text("│ ").append(f"{finding.verdict if first else '':7}", colour)
                text.append(f" │ {finding.name if first else '':{_NAME_COLUMNS}} │ {line}")
                console.print(text, soft_wrap=True)
    found = [finding for finding in findings if finding.verdict == "found"]
    closing = f"found: {', '.join(finding.name for finding in found)}"
    say(f"{closing}; begin with the first" if found else "nothing was found")


def _lines(finding: Finding, columns: int) -> Iterator[str]:
    """Evidence, what it means, and the next step in one line, so that it can be copied."""
    room = max(columns - len("│ unknown │  │ ") - _NAME_COLUMNS, _LEAST_COLUMNS)
    for text in (finding.evidence, finding.meaning):
        yield from textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    if finding.step:
        yield f"next: {finding.step}"
