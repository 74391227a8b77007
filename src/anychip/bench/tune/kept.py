"""The table that is kept: JSON with all that was measured, and where; two of them compared."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from .advice import Advice, percent
from .budget import Budget
from .judge import FIGURES, Interval, Series, Verdict, interval, unpaired, verdict
from .plan import Pass, Plan

FORMAT, VERSION = "anychip-tune", 1
NAME = "tune.json"


class KeptError(ValueError):
    """A file that is no table of this version, or not to be compared; the text says why."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in one pass."""

    stage: Pass
    series: Series


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """date: UTC. doctor: in words; forced: it was red. notes: what to know about the figures."""

    format: str = FORMAT
    version: int = VERSION
    date: str
    plan: Plan
    fingerprint: dict[str, Any]
    budget: Budget
    doctor: str
    forced: bool
    rows: tuple[Row, ...]
    advice: Advice
    notes: tuple[str, ...] = ()


def stamp() -> str:
    """Now, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(kept: Kept) -> str:
    """Indented, with an end of line."""
    return msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n"


def save(kept: Kept, folder: Path) -> Path:
    """Write FOLDER/tune.json, wholly or not at all. Raises OSError."""
    path = folder / NAME
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(as_json(kept), encoding="utf-8")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise
    return path


def load(place: Path) -> Kept:
    """A file, or the one in a folder. Raises KeptError."""
    path = place / NAME if place.is_dir() else place
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KeptError(f"{path} cannot be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(data, type=_Head)
        if (head.format, head.version) != (FORMAT, VERSION):
            raise KeptError(
                f"{path} is {head.format} of version {head.version}; this AnyChip reads {FORMAT} of"
                f" version {VERSION}: measure it anew"
            )
        return msgspec.json.decode(data, type=Kept)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise KeptError(f"{path} is no table of anychip tune: {error}") from error


class _Head(msgspec.Struct):
    format: str
    version: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a configuration then and now. difference: as a share of what it was."""

    stage: Pass
    configuration: str
    figure: str
    before: Interval
    now: Interval
    difference: Interval
    verdict: Verdict

    @property
    def percent(self) -> str:
        """The difference as a share of what it was."""
        return percent(self.difference, self.before.value)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """facts: what else is not as it was, `name: then, now`. alone: configurations that only one of
    both has."""

    before: str
    now: str
    facts: tuple[str, ...]
    changes: tuple[Change, ...]
    alone: tuple[str, ...]


def compare(before: Kept, now: Kept) -> Comparison:
    """Figures of runs with the same load. KeptError where the load is another one."""
    _check_load(before.plan, now.plan)
    old, new = _by_key(before), _by_key(now)
    changes = [
        _change(key, name, old[key].values[name], new[key].values[name])
        for key in new
        if key in old
        for name in FIGURES
        if name in old[key].values and name in new[key].values
    ]
    return Comparison(
        before=before.date,
        now=now.date,
        facts=tuple(_facts(before, now)),
        changes=tuple(changes),
        alone=tuple(
            f"{stage}: {label}"
            for stage, label in (*old, *new)
            if _one_sided(stage, label, old, new)
        ),
    )


_Key = tuple[Pass, str]


def _one_sided(stage: Pass, label: str, *tables: Mapping[_Key, Series]) -> bool:
    return not all((stage, label) in table for table in tables)


def _by_key(kept: Kept) -> dict[_Key, Series]:
    return {
        (row.stage, row.series.configuration.label): row.series
        for row in kept.rows
        if row.series.values
    }


def _check_load(before: Plan, now: Plan) -> None:
    for name in ("digest", "requests", "speed", "scaling"):
        then, today = getattr(before.load, name), getattr(now.load, name)
        if then != today:
            raise KeptError(
                f"--compare: the load was another one ({name}: {then}, now {today}), so figures"
                " cannot be compared; ask with the same --trace, --requests, --speed and lengths"
            )


def _change(key: _Key, name: str, before: Sequence[float], now: Sequence[float]) -> Change:
    difference = unpaired(now, before)
    return Change(
        stage=key[0],
        configuration=key[1],
        figure=name,
        before=interval(before),
        now=interval(now),
        difference=difference,
        verdict=verdict(difference, FIGURES[name].better),
    )


def _facts(before: Kept, now: Kept) -> list[str]:
    """What is not as it was: chip, driver, machine, model, base."""
    then, today = dict(_leaves(before.fingerprint)), dict(_leaves(now.fingerprint))
    pairs = [(name, then.get(name, "-"), today.get(name, "-")) for name in sorted({*then, *today})]
    pairs += [
        ("model", before.plan.model, now.plan.model),
        ("base", " ".join(before.plan.base), " ".join(now.plan.base)),
        ("doctor", before.doctor, now.doctor),
    ]
    return [f"{name}: {old}, now {new}" for name, old, new in pairs if old != new]


def _leaves(value: Mapping[str, Any], name: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, each in value.items():
        path = f"{name} {key}".strip()
        found += _leaves(each, path) if isinstance(each, Mapping) else [(path, str(each))]
    return found
