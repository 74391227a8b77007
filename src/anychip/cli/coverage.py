"""`anychip coverage`: which implementation serves each operator that a model needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.demo import with_demo_model
from anychip.cli.output import drawing, say
from anychip.config import OFFLINE, FlagParser, parse, serve_parser

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.run.coverage import CoverageReport


WIDE = 200
"""Columns of a table that no terminal shows: an id is never cut in two there."""


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip coverage",
        "Tell for each operator of a model what serves it on a chip: native, composed, host or"
        " missing. Exit code 1 where one is missing.",
        OFFLINE,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the table; 1 where an operator is missing."""
    config, namespace = parse(add_arguments(), argv)
    config = with_demo_model(config)
    from anychip.run.coverage import coverage

    report = coverage(config)
    if namespace.json:
        text = msgspec.json.encode(msgspec.to_builtins(report, enc_hook=str))
        say(msgspec.json.format(text, indent=2).decode())
    else:
        with drawing(WIDE) as console:
            console.print(_table(report))
    if report.missing:
        names = ", ".join(str(name) for name in report.missing)
        print(f"anychip: {report.backend} lacks {names} for {report.model}", file=sys.stderr)
    return 1 if report.missing else 0


def _table(report: CoverageReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("operator", "kind", "implementation"):
        table.add_column(name, no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    table.caption = "calls: in the largest prefill and decode steps, greedy and sampled, together"
    table.add_column("why", overflow="fold")
    table.title = f"{report.model} on {report.backend}"
    for row in report.rows:
        cells = (row.op, row.kind, row.implementation, str(row.calls), "; ".join(row.why))
        table.add_row(*(Text(cell) for cell in cells))
    return table
