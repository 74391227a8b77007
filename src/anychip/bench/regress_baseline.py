"""What was measured before: one file a backend and fingerprint, with the history of its changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from anychip.bench.regress_measure import Figures

SCHEMA = 1


class BaselineError(ValueError):
    """A file that is no baseline of this version; the text names the file and the way out."""


@dataclass(frozen=True)
class Known:
    """A case's figures as they were accepted. prefill, decode: tokens a second."""

    dtype: str
    deviation: float
    prefill: float | None = None
    decode: float | None = None

    @classmethod
    def of(cls, figures: Figures) -> Known:
        """What a run showed, rounded: more digits are noise."""
        speeds = (_rounded(figures.prefill), _rounded(figures.decode))
        return cls(figures.dtype, float(f"{figures.deviation:.3g}"), *speeds)


def _rounded(speed: float | None) -> float | None:
    return None if speed is None else float(f"{speed:.3g}")


@dataclass(frozen=True)
class Baseline:
    """Figures of one backend on one fingerprint. history: what each change replaced, in order."""

    backend: str
    fingerprint: Mapping[str, Any]
    fingerprint_id: str
    date: str
    reason: str
    cases: Mapping[str, Known]
    history: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)


def load(path: Path) -> Baseline:
    """Read a baseline. Raises BaselineError for anything else."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BaselineError(f"baseline {path} cannot be read: {error}") from error
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        raise BaselineError(
            f"baseline {path} has schema {schema}, this version reads {SCHEMA}; measure it anew "
            "with --update --reason, in another --baseline folder"
        )
    try:
        cases = {key: Known(**known) for key, known in raw.pop("cases").items()}
        del raw["schema"]
        raw["history"] = tuple(raw["history"])
        found = Baseline(cases=cases, **raw)
        msgspec.convert(asdict(found), Baseline)  # each value of the type that is written there
        return found
    except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise BaselineError(f"baseline {path} lacks something or has too much: {error}") from error


def save(folder: Path, baseline: Baseline) -> Path:
    """Write `folder`/BACKEND/FINGERPRINT.json, wholly or not at all, and return its path.

    Raises BaselineError where that is not possible; what was there stays.
    """
    path = _path(folder, baseline.backend, baseline.fingerprint_id)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    text = json.dumps({"schema": SCHEMA, **asdict(baseline)}, indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise BaselineError(f"baseline {path} cannot be written: {error.strerror}") from error
    return path


def best(folder: Path, backend: str, fingerprint: Mapping[str, Any], id: str) -> Baseline | None:
    """The baseline of this fingerprint; otherwise the newest of the backend, one with the same
    chip options before others. None where there is none. Raises BaselineError."""
    exact = _path(folder, backend, id)
    if exact.exists():
        return load(exact)
    found = [load(path) for path in sorted(exact.parent.glob("*.json"))]
    options = fingerprint.get("options")
    return max(found, key=lambda b: (b.fingerprint.get("options") == options, b.date), default=None)


def _path(folder: Path, backend: str, id: str) -> Path:
    return folder / backend / f"{id}.json"


def updated(old: Baseline | None, new: Baseline) -> Baseline:
    """`new` with the cases of `old` that it does not have, and the history of both.

    old: of the same fingerprint.
    """
    before = old.cases if old else {}
    changed = {
        key: {"old": asdict(before[key]) if key in before else None, "new": asdict(known)}
        for key, known in new.cases.items()
        if before.get(key) != known
    }
    entry = {"date": new.date, "reason": new.reason, "changed": changed}
    return Baseline(
        new.backend,
        new.fingerprint,
        new.fingerprint_id,
        new.date,
        new.reason,
        {**before, **new.cases},
        (*(old.history if old else ()), entry),
    )
