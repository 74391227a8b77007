"""`anychip coverage`: which implementation serves each operator that a model needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.local import with_model
from anychip.cli.output import drawing, say
from anychip.config import OFFLINE, ConfigError, FlagParser, ServeConfig, parse, serve_parser

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.run.coverage import Brought, CoverageReport


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
    parser.add_argument(
        "--catalogue",
        action="store_true",
        help="no model: every operator of the catalogue, and what the chip brings for it",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="with --catalogue: a table for a document"
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the table; 1 where an operator is missing."""
    config, namespace = parse(add_arguments(), argv)
    if namespace.catalogue:
        return _catalogue(config, namespace)
    if namespace.markdown:
        raise ConfigError("--markdown: only with --catalogue")
    config = with_model(config)
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


def _catalogue(config: ServeConfig, namespace: argparse.Namespace) -> int:
    from anychip.run.coverage import checklist

    lines = checklist(config)
    if namespace.json:
        say(msgspec.json.format(msgspec.json.encode(lines), indent=2).decode())
    elif namespace.markdown:
        say(_markdown(lines))
    else:
        with drawing(WIDE) as console:
            console.print(_checklist(lines, config.backend))
    return 1 if any(line.kind == "missing" for line in lines) else 0


HEADINGS = ("operator", "tier", "kind", "implementation", "call", "dtypes", "assumed")


def _markdown(lines: Sequence[Brought]) -> str:
    rows = [[str(cell).replace("|", "\\|") for cell in _cells(line)] for line in lines]
    table = [HEADINGS, ("---",) * len(HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _cells(line: Brought) -> tuple[str, ...]:
    return (
        line.op,
        line.tier,
        line.kind,
        line.implementation,
        line.call,
        line.dtypes,
        line.assumed,
    )


def _checklist(lines: Sequence[Brought], backend: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"the catalogue on {backend}")
    for name in HEADINGS:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in _cells(line)))
    return table


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
