"""Where a measurement was made: chip, device, versions and host, as one record with a short id.

Two reports with the same id can be compared figure by figure; where the ids differ, the records
say what changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from anychip.contract.fingerprint import lock_text
from anychip.contract.registration import (
    ENTRY_POINT_GROUP,
    Chip,
    Probe,
    probe_chip,
    read_options,
)
from anychip.contract.version import CONTRACT, dotted

ID_DIGITS = 12


def fingerprint_of(
    chip: Chip,
    device: int,
    options: Mapping[str, Any],
    opened: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of an opened chip: JSON values alone, the same in every run until one changes.

    device: its index. options: those that were given, not the defaults. opened: all that it was
    opened with, parsed; None where that is its defaults. No date and no name of the host are in
    it. Raises what the chip's `probe` and `build.versions` raise.
    """
    record = fingerprint_unopened(chip.name, device, options)
    cls = type(chip)
    probe = probe_chip(cls, read_options(cls, {}) if opened is None else opened)
    return record | {
        "chip": record["chip"] | _origin(cls),
        "device": record["device"] | _device(probe, device),
        "versions": dict(sorted({**probe.versions, **chip.build.versions()}.items())),
    }


def fingerprint_unopened(name: str, device: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a chip that does not open: nothing of the chip is called."""
    return {
        "anychip": _distribution_version("anychip"),
        "contract": dotted(CONTRACT),
        "operators": hashlib.sha256(lock_text().encode()).hexdigest()[:16],
        "chip": {"name": name},
        "device": {"index": device},
        "options": {key: str(value) for key, value in sorted(options.items())},
        "versions": {},
        "host": _host(),
        "python": platform.python_version(),
        "numpy": _distribution_version("numpy"),
    }


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """The first 12 hex digits of SHA-256 over the record's canonical JSON."""
    text = json.dumps(fingerprint, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


def _origin(cls: type[Chip]) -> dict[str, str]:
    """Who made the chip, and the distribution that brought it; "none" for a class of a test."""
    place = f"{cls.__module__}:{cls.__qualname__}"
    found = entry_points(group=ENTRY_POINT_GROUP, name=cls.name)
    owner = next((e.dist for e in found if e.value == place and e.dist is not None), None)
    return {
        "vendor": cls.vendor,
        "contract": dotted(cls.contract),
        "distribution": owner.name if owner else "none",
        "distribution version": owner.version if owner else "none",
    }


def _device(probe: Probe, index: int) -> dict[str, Any]:
    found = next((d for d in probe.devices if d.index == index), None)
    return {} if found is None else {"name": found.name, "memory": found.memory}


def _host() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": _cores(),
    }


def _processor() -> str:
    """The model's name as Linux tells it, elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _cores() -> int:
    """Cores that this process may use; 0 where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _distribution_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
