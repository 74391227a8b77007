"""Implementations that rest on a guess, and what confirmed them: on this machine, this SDK.

A record holds for the versions under which it was made: another SDK or driver asks anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from anychip.contract.registration import Chip


def record_path(folder: Path, chip: Chip) -> Path:
    """Where the record of this chip, with these versions, lies. Raises what `versions` raises."""
    facts = {"chip": chip.name, "versions": dict(chip.build.versions())}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"{chip.name}-{digest}.json"


def proved_ids(folder: Path, chip: Chip) -> frozenset[str]:
    """Ids that were confirmed; looks nowhere where the chip has nothing to confirm."""
    if not any(i.unproved for i in chip.operators.implementations):
        return frozenset()
    return frozenset(_read(record_path(folder, chip)))


def record_proved(folder: Path, chip: Chip, ids: Iterable[str]) -> Path:
    """Add ids to the record; an entry appears whole or not at all. Raises OSError."""
    path = record_path(folder, chip)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    known = _read(path) | dict.fromkeys(ids, now)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".proved-")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump({"implementations": known}, out, indent=2)
    os.replace(name, path)
    return path


def _read(path: Path) -> dict[str, str]:
    """Id -> when it was confirmed; a damaged record confirms nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["implementations"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
