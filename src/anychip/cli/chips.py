"""`anychip chips`: every installed chip, or why it is unavailable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anychip.config import FlagParser

if TYPE_CHECKING:
    from rich.table import Table

    from anychip.contract.discovery import ChipListing


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser("anychip chips", "List the installed chips.")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="open each chip: capabilities and options too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the chips; 0 also where one is unavailable, which is told in its line."""
    arguments = add_arguments().parse_args(list(argv))
    from anychip.contract.discovery import list_chips

    chips = list_chips()
    facts = {chip.name: capabilities_of(chip) for chip in chips if arguments.verbose}
    if arguments.json:
        print(_as_json(chips, facts))
        return 0
    from rich.console import Console

    console = Console()
    console.print(_table(chips))
    for chip in chips:
        if arguments.verbose:
            console.print(
                _details(chip, facts[chip.name]), highlight=False, markup=False, soft_wrap=True
            )
    return 0


def capabilities_of(listing: ChipListing) -> dict[str, Any]:
    """Facts of the chip's first device, opened for a moment; the reason where it does not open."""
    from anychip.contract.discovery import open_chip
    from anychip.contract.errors import ChipError, ContractError
    from anychip.contract.registration import chip_slots

    if not listing.available:
        return {"unavailable": listing.reason}
    try:
        chip = open_chip(listing.name, int(listing.devices[0].partition(":")[0]), {})
    except (ChipError, ContractError) as error:
        return {"does not open": str(error)}
    try:
        facts = dict(msgspec.to_builtins(chip.capabilities(), enc_hook=str))
        return facts | {"empty slots": list(chip_slots(chip))}
    finally:
        chip.close()


def _as_json(chips: Sequence[ChipListing], facts: Mapping[str, dict[str, Any]]) -> str:
    rows = []
    for chip in chips:
        row = dict(msgspec.to_builtins(chip, enc_hook=str))
        if chip.name in facts:
            row["capabilities"] = facts[chip.name]
        rows.append(row)
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _table(chips: Sequence[ChipListing]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("chip", "from", "vendor", "contract", "available")
    table.add_column("devices or reason", overflow="fold")
    for chip in chips:
        version = ".".join(str(part) for part in chip.contract or ("?",))
        note = ", ".join(chip.devices) if chip.available else chip.reason
        origin = f"{chip.distribution} {chip.version}"
        cells = (chip.name, origin, chip.vendor, version, "yes" if chip.available else "no", note)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _details(chip: ChipListing, facts: Mapping[str, Any]) -> str:
    lines = [f"{chip.name} capabilities:"]
    lines += [f"  {name}: {value}" for name, value in facts.items()]
    lines += [f"  version of {name}: {value}" for name, value in chip.versions.items()]
    if chip.available:
        lines += [f"{chip.name} options (--chip-option NAME=VALUE):"]
        lines += [f"  {option}" for option in chip.options] or ["  none"]
    return "\n".join(lines)
