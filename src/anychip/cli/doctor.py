"""`anychip doctor`: what is sound about a chip and a model on it, what is not, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.demo import with_demo_model
from anychip.cli.output import drawing, say
from anychip.config import CHECKED, FlagParser, parse, serve_parser

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.contract.build import Finding

WIDE = 160
"""Columns of a table that no terminal shows."""

_COLOURS = {"good": "green", "unknown": "yellow", "bad": "red"}


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip doctor",
        "Look a chip over; with --model-path the model on it too; with --check-ops compare the"
        " operators of a prefill and two decode steps with the oracle (of the demo model where"
        " none is named). Exit code 1 where something is red.",
        CHECKED,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the findings; 1 where one is bad."""
    config, namespace = parse(add_arguments(), argv)
    if config.check_ops:
        config = with_demo_model(config)
    from anychip.contract.build import Verdict
    from anychip.engine.doctor import doctor

    findings = list(doctor(config, model=config.model_path is not None))
    if namespace.json:
        say(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        with drawing(WIDE) as console:
            console.print(_table(config.backend, findings))
    return 1 if any(finding.verdict is Verdict.BAD for finding in findings) else 0


def _table(backend: str, findings: Sequence[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"chip {backend}")
    table.add_column("", no_wrap=True)
    table.add_column("what", no_wrap=True)
    for name in ("finding", "next"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        colour = _COLOURS[finding.verdict.value]
        cells = (finding.name, finding.text, finding.step)
        table.add_row(Text(colour, colour), *(Text(cell) for cell in cells))
    return table
