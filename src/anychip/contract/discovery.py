"""Finding chips: the installed ones are known from their entry points, without importing any.

`list_chips` has to import a chip to tell whether it is available: it does so in a process of its
own for each, so that a vendor library that is broken or hangs costs that chip's line alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.registration import (
    ENTRY_POINT_GROUP,
    Capabilities,
    Chip,
    chip_slots,
    probe_chip,
    read_options,
)
from anychip.contract.remembered import merged


class UnknownChip(ContractError):
    """No installed distribution offers a chip of that name."""


@dataclass(frozen=True)
class ChipListing:
    """One line of `anychip chips`. Where `available` is false, `reason` says why.

    capabilities, empty_slots: of the first device, opened for a moment; only when asked for.
    """

    name: str
    distribution: str
    version: str
    available: bool
    reason: str = ""
    vendor: str = ""
    contract: tuple[int, int] | None = None
    devices: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)
    empty_slots: tuple[str, ...] = ()


def chip_names() -> tuple[str, ...]:
    """Names of the installed chips, sorted; imports none of them."""
    return tuple(sorted({e.name for e in entry_points(group=ENTRY_POINT_GROUP)}))


def load_chip(name: str) -> type[Chip]:
    """Import the one chip that was asked for. Raises UnknownChip or ContractError."""
    found = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == name]
    if not found:
        raise UnknownChip(
            f"no chip '{name}' is installed; installed are: {', '.join(chip_names()) or 'none'}"
        )
    if len({e.value for e in found}) > 1:
        offers = ", ".join(f"{_owner(e)[0]} ({e.value})" for e in found)
        raise ContractError(
            f"chip '{name}' is offered more than once: {offers}; uninstall all but one"
        )
    return _load(found[0])


def _load(entry: EntryPoint) -> type[Chip]:
    try:
        cls = entry.load()
    except (ImportError, AttributeError) as error:
        raise ContractError(
            f"chip '{entry.name}' ({entry.value}) cannot be imported: {error}"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Chip)) or cls.name != entry.name:
        raise ContractError(
            f"entry point '{entry.name}' ({entry.value}) must lead to a class with "
            f"@register_chip('{entry.name}', ...)"
        )
    return cls


def open_chip(name: str, device: int, options: Mapping[str, str]) -> Chip:
    """Load, probe and open a chip; never another one in its place."""
    cls = load_chip(name)
    values: dict[str, Any] = read_options(cls, options)
    probe = probe_chip(cls, values)
    if not probe.devices:
        raise ContractError(f"chip '{name}' is not available: {probe.reason}")
    if device not in {d.index for d in probe.devices}:
        there = ", ".join(f"{d.index} ({d.name})" for d in probe.devices)
        raise ContractError(f"chip '{name}' has no device {device}; it has: {there}")
    return cls.open(device, values)


def list_chips(
    timeout: float = 20.0,
    *,
    describe: bool = False,
    kept: Path | None = None,
) -> list[ChipListing]:
    """Every installed chip with its devices, or why it is not available; imports none of them.

    timeout: seconds for each chip. describe: open the first device, for its capabilities.
    kept: the folder with the options that `anychip build` was given; see `remembered`.
    """
    entries = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name)
    wishes = {"describe": describe, "kept": str(kept) if kept else None}
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda e: _listing(e, timeout, wishes), entries))


def _listing(entry: EntryPoint, timeout: float, wishes: Mapping[str, Any]) -> ChipListing:
    distribution, version = _owner(entry)
    listing = ChipListing(entry.name, distribution, version, available=False)
    question = {"name": entry.name, "value": entry.value, **wishes}
    try:
        seen = run_in_child(f"{__name__}:describe_entry", question, timeout)
    except ChildFailed as error:
        return replace(listing, reason=str(error))
    contract = tuple(seen.pop("contract", None) or ()) or None
    lists = {name: tuple(value) for name, value in seen.items() if isinstance(value, list)}
    return replace(listing, contract=contract, **{**seen, **lists})


def describe_entry(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the child answers: fields of ChipListing as JSON values."""
    entry = EntryPoint(question["name"], question["value"], ENTRY_POINT_GROUP)
    try:
        cls = _load(entry)
        given = merged(cls, {}, Path(question["kept"])) if question["kept"] else {}
        return _described(cls, read_options(cls, given), question["describe"])
    except Exception as error:  # noqa: BLE001 - any code may run here; the reason is told
        return {"available": False, "reason": f"{type(error).__name__}: {error}"}


def _described(cls: type[Chip], options: dict[str, Any], describe: bool) -> dict[str, Any]:
    probe = probe_chip(cls, options)
    facts: dict[str, Any] = {
        "available": bool(probe.devices),
        "reason": probe.reason,
        "vendor": cls.vendor,
        "contract": list(cls.contract),
        "devices": [f"{d.index}: {d.name}" for d in probe.devices],
        "versions": dict(probe.versions),
        "options": [
            f"{o.name} ({o.type.__name__}, default {_word(o.default)}): {o.help}"
            for o in cls.options
        ],
    }
    if describe and probe.devices:
        facts |= _opened(cls, probe.devices[0].index, options)
    return facts


def _opened(cls: type[Chip], device: int, options: dict[str, Any]) -> dict[str, Any]:
    try:
        chip = cls.open(device, options)
    except (ChipError, ContractError) as error:
        return {"available": False, "reason": f"does not open: {error}"}
    try:
        capabilities = _as_text(chip.capabilities())
        return {"capabilities": capabilities, "empty_slots": list(chip_slots(chip))}
    finally:
        chip.close()


def _as_text(capabilities: Capabilities) -> dict[str, str]:
    values = {f.name: getattr(capabilities, f.name) for f in fields(capabilities)}
    facts = values.pop("facts")
    text = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else _word(value)
        for name, value in values.items()
    }
    return text | {name: str(value) for name, value in facts.items()}


def _word(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _owner(entry: EntryPoint) -> tuple[str, str]:
    return (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "?")
