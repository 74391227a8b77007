"""What was measured before: one file a backend and fingerprint, with the history of its changes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from anychip.bench.regress_measure import Figures
from anychip.bench.regress_speed import Speeds

SCHEMA = 2


class BaselineError(ValueError):
    """A file that is no baseline of this version; the text names the file and the way out."""


@dataclass(frozen=True)
class Known:
    """A case's figures as they were accepted. tokens: ids of the first request's answer.
    perplexity: the chip's; change: share by which it is larger than the reference's."""

    dtype: str
    deviation: float
    tokens: tuple[int, ...] = ()
    perplexity: float | None = None
    change: float | None = None
    speeds: Speeds | None = None

    @classmethod
    def of(cls, figures: Figures) -> Known:
        """What a run showed, rounded: more digits are noise."""
        found, speeds = figures.perplexity, figures.speeds
        return cls(
            figures.dtype,
            float(f"{figures.deviation:.3g}"),
            figures.tokens[0] if figures.tokens else (),
            None if found is None else float(f"{found.chip:.6g}"),
            None if found is None else float(f"{found.change:.2g}"),
            None if speeds is None else speeds.rounded(),
        )


@dataclass(frozen=True)
class Baseline:
    """Figures of one backend on one fingerprint. history: date and reason of each change, in order,
    what it replaced (case -> figures) and the cases that it added."""

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
        del raw["schema"]
        unknown = raw.keys() - {f.name for f in fields(Baseline)}
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        found = msgspec.convert(raw, Baseline)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise BaselineError(f"baseline {path} lacks something or has too much: {error}") from error
    _check_possible(path, found)
    return found


def _check_possible(path: Path, found: Baseline) -> None:
    """Figures that no run shows would call every run worse, or none."""
    if found.backend != path.parent.name:
        raise BaselineError(
            f"baseline {path} is of {found.backend!r:.40}; put it into a folder of that name"
        )
    for key, known in found.cases.items():
        if not 0 <= known.deviation < math.inf:
            raise BaselineError(
                f"baseline {path}: case {key!r:.80}: a deviation of {known.deviation} is none; a "
                "number from 0 on is needed, measure it anew with --update --reason"
            )


def save(folder: Path, baseline: Baseline) -> Path:
    """Write `folder`/BACKEND/FINGERPRINT.json, wholly or not at all, and return its path.

    Raises BaselineError where that is not possible; what was there stays.
    """
    path = _path(folder, baseline.backend, baseline.fingerprint_id)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    text = _text(baseline)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
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
    for above in (folder, exact.parent):
        if above.exists() and not above.is_dir():
            raise BaselineError(f"{above} is no folder; name one of baselines with --baseline")
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
    entry = {
        "date": new.date,
        "reason": new.reason,
        "added": sum(key not in before for key in new.cases),
        "replaced": {
            key: _short(before[key])
            for key, known in new.cases.items()
            if key in before and before[key] != known
        },
    }
    history = (*(old.history if old else ()), entry)
    cases = {**before, **new.cases}
    return replace(new, cases=cases, history=history)


def _short(known: Known) -> dict[str, Any]:
    """As JSON, without what is not there."""
    return {key: value for key, value in asdict(known).items() if value not in (None, ())}


def _text(baseline: Baseline) -> str:
    """JSON with a line for each case: short, and a change of one is a change of one line."""
    head = {"schema": SCHEMA, **asdict(replace(baseline, cases={}, history=()))}
    del head["cases"], head["history"]
    cases = [f"{json.dumps(k)}: {_dense(_short(known))}" for k, known in baseline.cases.items()]
    parts = [
        *(f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in head.items()),
        f'"cases": {{\n  {_lines(sorted(cases))}\n }}',
        f'"history": [\n  {_lines([_dense(entry) for entry in baseline.history])}\n ]',
    ]
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(items: list[str]) -> str:
    return ",\n  ".join(items)


def _dense(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
