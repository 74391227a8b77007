"""The report of a run as one JSON object: what was seen, where, with which outcome."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from anychip.conform.proof import Level, Status
from anychip.conform.result import Result
from anychip.conform.selection import Selection
from anychip.flags import ConfigError
from anychip.run.fingerprint import fingerprint_id

KIND, SCHEMA = "anychip conformance", 1
BAD = (Status.FAIL, Status.MISSING)
"""A chip with one of these does not conform."""


class Row(msgspec.Struct, frozen=True):
    """One result. figures: null for a number that is none (an error of NaN, say)."""

    check: str
    level: Level
    status: Status
    text: str
    seconds: float
    figures: dict[str, float | None] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run. date: UTC, no part of the fingerprint. summary: level -> status -> count.

    interrupted: checks that were asked for behind the last result were not run.
    """

    kind: str = KIND
    schema: int = SCHEMA
    date: str
    fingerprint_id: str
    fingerprint: dict[str, Any]
    levels: list[Level]
    only: list[str]
    summary: dict[str, dict[str, int]]
    results: list[Row]
    interrupted: bool = False

    @property
    def whole(self) -> bool:
        """Whether every check of every level was asked for and had its turn."""
        return not (self.only or self.interrupted) and set(self.levels) == set(Level)

    @property
    def ok(self) -> bool:
        """Whether nothing fails and nothing is missing. INCONCLUSIVE is neither."""
        return not any(row.status in BAD for row in self.results)

    def rows(self, *statuses: Status) -> list[Row]:
        """Results of these statuses, in the order of the run."""
        return [row for row in self.results if row.status in statuses]


def report_of(
    results: Sequence[Result],
    fingerprint: Mapping[str, Any],
    selection: Selection,
    *,
    interrupted: bool = False,
) -> Report:
    """The report of a run that has just ended, or was ended."""
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = [_row(result) for result in results]
    return Report(
        date=now.isoformat(timespec="seconds"),
        fingerprint_id=fingerprint_id(fingerprint),
        fingerprint=dict(fingerprint),
        levels=list(selection.levels),
        only=list(selection.only),
        summary=_summary(rows),
        results=rows,
        interrupted=interrupted,
    )


def to_json(report: Report) -> str:
    """Indented, with a line feed at the end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def read_report(path: str) -> Report:
    """Raises ConfigError for a file that cannot be read, is no report, or is of another schema."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
        _check_head(path, head)
        return msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{path}: is no report of `anychip conform`: {error}") from error


def _check_head(path: str, head: Mapping[str, Any]) -> None:
    if head.get("kind") != KIND:
        raise ConfigError(
            f"{path}: is no report of `anychip conform`; make one with --output {path}"
        )
    if head.get("schema") != SCHEMA:
        raise ConfigError(
            f"{path}: has schema {head.get('schema')}, this anychip reads {SCHEMA}; make it anew"
        )


def _row(result: Result) -> Row:
    proof = result.proof
    figures = {n: float(v) if math.isfinite(v) else None for n, v in proof.figures.items()}
    seconds = round(result.seconds, 6)
    return Row(result.key, result.level, proof.status, proof.text, seconds, figures)


def _summary(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Every status of every level that has a result, zeros too."""
    counts = Counter((row.level, row.status) for row in rows)
    levels = [level for level in Level if any(row.level is level for row in rows)]
    return {lv.value: {st.value: counts[lv, st] for st in Status} for lv in levels}
