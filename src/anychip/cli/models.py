"""`anychip models`: the model families, what each needs, and how a chip serves them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.chip_flags import add_chip_flags
from anychip.cli.output import drawing, say
from anychip.config import ConfigError, FlagParser, parse

if TYPE_CHECKING:
    from argparse import Namespace

    from rich.table import Table

    from anychip.bench.families import FamilyLine, FamilyOnChip

WIDE = 180
"""Columns of a table that no terminal shows."""


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip models",
        "List the model families: versions, what their files call them, what each needs beyond "
        "Llama's operators. With --check: how the chip of --backend serves a tiny model of each; "
        "exit code 1 where an operator is missing.",
    )
    add_chip_flags(parser)
    parser.add_argument(
        "--check", action="store_true", help="open the chip of --backend and ask it about each"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the families; 1 where --check finds an operator missing."""
    config, namespace = parse(add_arguments(), argv)
    _refuse_idle_flags(namespace)
    from anychip.bench.families import families, families_on

    lines = families()
    served = families_on(config, _told) if namespace.check else []
    if namespace.json:
        found = msgspec.to_builtins({"families": lines, "served": served})
        say(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        with drawing(WIDE) as console:
            console.print(_served(config.backend, served) if namespace.check else _families(lines))
    return 1 if any(line.missing for line in served) else 0


def _refuse_idle_flags(namespace: Namespace) -> None:
    """The families are the same on every chip: a flag that names one would be ignored."""
    if namespace.check:
        return
    for field in ("backend", "device_index", "chip_option"):
        if getattr(namespace, field, None) is not None:
            flag = "--" + field.replace("_", "-")
            raise ConfigError(f"{flag}: no chip is asked; add --check or leave it out")


def _told(name: str, done: int, total: int) -> None:
    print(f"anychip: {done + 1} of {total}: {name}", file=sys.stderr)


def _families(lines: Sequence[FamilyLine]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("family", "versions", "config.json", "GGUF", "needs beyond Llama")
    for line in lines:
        needs = ", ".join((*line.beyond, *line.traits)) or "nothing"
        cells = (line.name, line.title, line.hf, line.gguf or "-", needs)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _served(backend: str, lines: Sequence[FamilyOnChip]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("family", f"native on {backend}", "composed of others", "missing")
    for line in lines:
        composed = ", ".join((*line.composed, *(f"{op} (host)" for op in line.host))) or "none"
        cells = (line.name, str(len(line.native)), composed, ", ".join(line.missing) or "none")
        table.add_row(*(Text(cell) for cell in cells))
    return table
