"""Implementations that rest on a guess, and what confirmed them: on this machine, this SDK.

A record holds for the versions under which it was made: another SDK or driver asks anew. So does
a guess that was changed since.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip


def record_path(folder: Path, chip: Chip) -> Path:
    """Where the record of this chip, with these versions, lies. Raises what `versions` raises."""
    facts = {"chip": chip.name, "versions": dict(chip.build.versions())}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"{chip.name}-{digest}.json"


def proved_ids(folder: Path, chip: Chip) -> frozenset[str]:
    """Ids that were confirmed; looks nowhere where the chip has nothing to confirm."""
    guesses = [i for i in chip.operators.implementations if i.unproved]
    if not guesses:
        return frozenset()
    known = _read(record_path(folder, chip))
    return frozenset(i.id for i in guesses if _confirms(known.get(i.id), i))


def record_proved(folder: Path, chip: Chip, ids: Iterable[str]) -> Path:
    """Add ids of the chip's implementations to the record; it appears whole or not at all.

    Raises OSError, and what `versions` raises.
    """
    path, confirmed = record_path(folder, chip), frozenset(ids)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    guesses = [i for i in chip.operators.implementations if i.id in confirmed]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(path):
        known = _read(path) | {i.id: {"confirmed": now, "guess": _guess(i)} for i in guesses}
        written = path.with_name(f".{path.name}.{os.getpid()}")
        written.write_text(json.dumps({"implementations": known}, indent=2), encoding="utf-8")
        written.replace(path)
    return path


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Other processes that write this record wait."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _guess(implementation: Implementation) -> str:
    """What was run and what was assumed of it."""
    return f"{implementation.call}: {implementation.assumed}"


def _confirms(entry: Any, implementation: Implementation) -> bool:
    return isinstance(entry, dict) and entry.get("guess") == _guess(implementation)


def _read(path: Path) -> dict[str, Any]:
    """Id -> when it was confirmed, and what of it; a damaged record confirms nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["implementations"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
