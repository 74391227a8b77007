"""What the machine says of cards beside the vendor's libraries, and which of them are meant."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from anychip.contract.errors import ContractError

PCI = Path("/sys/bus/pci/devices")
TOOL_SECONDS = 10.0


def on_the_bus(vendor: str) -> str:
    """How many devices of a PCI vendor ("0x1234") the bus has, in words."""
    vendors = [file.read_text().strip() for file in PCI.glob("*/vendor")]
    return f"the PCI bus has {vendors.count(vendor)} devices of vendor {vendor}"


def strange_tools(names: Iterable[str], word: str) -> list[str]:
    """Tools on the path that print something, but not this word: another vendor's, or broken."""
    told = []
    for tool in filter(None, map(shutil.which, names)):
        said = _said(tool)
        if said and word not in said:
            told.append(f"{tool} is another vendor's tool, or broken: {said.splitlines()[0]}")
    return told


def _said(tool: str) -> str:
    try:
        done = subprocess.run(
            [tool], capture_output=True, text=True, errors="replace", timeout=TOOL_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout.strip()


def visible_cards(chip: str, text: str, count: int) -> list[int]:
    """Physical cards in the order of ranks, from "1,0"; all of them where it is empty.

    Raises ContractError for a card that is not there.
    """
    words = [w.strip() for w in text.split(",") if w.strip()]
    if text.strip() and not words:
        raise ContractError(f"chip '{chip}': option visible={text}: it names no card")
    if wrong := [w for w in words if not (w.isascii() and w.isdecimal()) or int(w) >= count]:
        why = f"there is no card '{wrong[0]}', there are {count}, counted from 0"
        raise ContractError(f"chip '{chip}': option visible={text}: {why}")
    return [int(w) for w in words] or list(range(count))


def card_of(chip: str, text: str, count: int, device: int) -> int:
    """The physical card of a device. Raises ContractError."""
    cards = visible_cards(chip, text, count)
    if device not in range(len(cards)):
        why = f"there is no device {device}, {len(cards)} cards are visible"
        raise ContractError(f"chip '{chip}': {why}")
    return cards[device]
