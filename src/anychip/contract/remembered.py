"""Options of a chip that `anychip build` was given: later commands open the chip with the same."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from anychip.contract.compile import refuse_shared
from anychip.contract.errors import ContractError
from anychip.contract.registration import Chip, variables_of

log = logging.getLogger("anychip.chip")


def record_of(folder: Path, chip: str) -> Path:
    """The file that keeps the options of a chip; folder: that of built kernels."""
    return folder / f"{chip}.json"


def remembered(cls: type[Chip], folder: Path) -> dict[str, str]:
    """What is kept for this chip. Raises ContractError where the file is damaged, or names an
    option that the chip does not have; ChipError where others may write to the folder."""
    path = record_of(folder, cls.name)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(cls, path, str(error)) from error
    refuse_shared(cls.name, folder)  # options name libraries that are loaded
    if not isinstance(kept, dict) or not all(isinstance(v, str) for v in kept.values()):
        raise _unreadable(cls, path, "it holds no options")
    unknown = sorted(set(kept) - {o.name for o in cls.options})
    if unknown:
        raise _unreadable(cls, path, f"chip '{cls.name}' has no option '{unknown[0]}'")
    return kept


def merged(cls: type[Chip], typed: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Typed options, and those that are kept, but for the ones whose vendor variable is set.

    Raises as `remembered` does.
    """
    kept = remembered(cls, folder)
    used = {n: v for n, v in kept.items() if n not in typed and n not in variables_of(cls)}
    if used:
        _tell(str(record_of(folder, cls.name)), ", ".join(f"{n}={v}" for n, v in used.items()))
    return {**used, **typed}


@cache
def _tell(path: str, options: str) -> None:
    """Once in a process for the same: every command that opens a chip comes by here repeatedly."""
    log.info("options that anychip build kept in %s: %s", path, options)


def remember(chip: str, folder: Path, options: Mapping[str, Any]) -> Path:
    """Keep these; the file appears whole or not at all. Raises OSError."""
    path = record_of(folder, chip)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_text(json.dumps(dict(options), indent=1) + "\n", encoding="utf-8")
    written.replace(path)
    return path


def forget(chip: str, folder: Path) -> bool:
    """Drop what is kept; whether there was something. Raises OSError."""
    path = record_of(folder, chip)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def _unreadable(cls: type[Chip], path: Path, why: str) -> ContractError:
    return ContractError(f"{path}: {why}; drop it with: anychip build {cls.name} --forget")
