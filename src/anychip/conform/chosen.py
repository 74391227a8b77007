"""The subject that a configuration asks for: chip, device and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.config import ServeConfig
from anychip.conform.subject import Subject
from anychip.contract.discovery import chip_names, load_chip
from anychip.contract.errors import ContractError
from anychip.contract.registration import probe_chip, read_options
from anychip.flags import ConfigError
from anychip.run.fingerprint import fingerprint_of, fingerprint_unopened
from anychip.run.plan_run import chip_options


def check_backend(name: str) -> None:
    """Raise ConfigError where no chip of that name is installed; imports none."""
    if name not in chip_names():
        offer = ", ".join(chip_names()) or "none"
        raise ConfigError(f"--backend: no chip {name!r} is installed; installed are: {offer}")


def subject_of(config: ServeConfig) -> Subject:
    """Import the chip that is asked for, read its options, look for its device; opens nothing.

    Raises ConfigError where the user asks for what is not there, ContractError where the chip
    cannot be imported or finds no device, and what its `probe` raises.
    """
    check_backend(config.backend)
    cls = load_chip(config.backend)
    try:
        options = read_options(cls, chip_options(config))
    except ContractError as error:
        raise ConfigError(f"--chip-option: {error}") from error
    probe = probe_chip(cls, options)
    if not probe.devices:
        raise ContractError(f"chip '{cls.name}' is not available: {probe.reason}")
    if config.device_index not in {device.index for device in probe.devices}:
        there = ", ".join(f"{device.index} ({device.name})" for device in probe.devices)
        raise ConfigError(f"--device-index: no device {config.device_index}; there are: {there}")
    return Subject(cls, config.device_index, options)


def fingerprint_of_subject(subject: Subject, given: Mapping[str, str]) -> dict[str, Any]:
    """The fingerprint of a subject; of a chip that does not open, what is known, and why.

    given: the options that the user typed.
    """
    try:
        return fingerprint_of(subject.chip, subject.device, given, subject.options)
    except Exception as error:  # noqa: BLE001 - a chip may raise anything; it is part of the record
        record = fingerprint_unopened(subject.cls.name, subject.device, given)
        return record | {"not opened": f"{type(error).__name__}: {error}"}
