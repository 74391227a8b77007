"""`anychip chips`: every installed chip, or why it is unavailable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.output import drawing, say
from anychip.config import FlagParser, read_config

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.contract.discovery import ChipListing


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser("anychip chips", "List the installed chips.")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="open each chip: what it can do, its options"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the chips; 0 also where one is unavailable, which is told with its reason."""
    arguments = add_arguments().parse_args(list(argv))
    from anychip.contract.discovery import list_chips

    # Opening may compile kernels, so describing has more time than looking.
    verbose = arguments.verbose
    kept = read_config([]).build_path
    chips = list_chips(180 if verbose else 20, describe=verbose, kept=kept)
    if arguments.json:
        say(msgspec.json.format(msgspec.json.encode(chips, enc_hook=str), indent=2).decode())
        return 0
    with drawing() as console:
        console.print(_table(chips))
        for chip in chips:
            text = _details(chip) if verbose else _reason(chip)
            if text:
                console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _table(chips: Sequence[ChipListing]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for head in ("chip", "from", "vendor", "contract", "available", "devices"):
        table.add_column(head, overflow="fold")
    for chip in chips:
        version = ".".join(str(part) for part in chip.contract or ("?",))
        note = ", ".join(chip.devices) if chip.available else "see below"
        origin = f"{chip.distribution} {chip.version}"
        cells = (chip.name, origin, chip.vendor, version, "yes" if chip.available else "no", note)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _reason(chip: ChipListing) -> str:
    """Below the table, where it has the whole width; empty for a chip that is available."""
    return "" if chip.available else f"{chip.name} is not available: {chip.reason}"


def _details(chip: ChipListing) -> str:
    lines = [f"{chip.name}:"]
    lines += [] if chip.available else [f"  not available: {chip.reason}"]
    lines += [f"  {name}: {value}" for name, value in chip.capabilities.items()]
    lines += [f"  version of {name}: {value}" for name, value in chip.versions.items()]
    lines += [f"  empty slots: {', '.join(chip.empty_slots) or 'none'}"] if chip.available else []
    if chip.available or chip.options:  # of one that cannot be imported they are not known
        lines += ["  options (--chip-option NAME=VALUE):"]
        lines += [f"    {option}" for option in chip.options] or ["    none"]
    return "\n".join(lines)
