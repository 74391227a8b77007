"""What changed between two reports, after an upgrade of a driver, say: the worse first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anychip.conform.proof import Level, Status
from anychip.conform.report import BAD, Report, Row

GROWN = 1.5
"""An error figure that is more than so many times the old one has grown."""

_RANK = (Status.PASS, Status.UNSUPPORTED, Status.INCONCLUSIVE, Status.MISSING, Status.FAIL)
"""From good to bad. A check that could be judged and no longer can has become worse."""


class Change(msgspec.Struct, frozen=True):
    """One thing that is another in the second report. subject: a fact's or a check's name."""

    subject: str
    before: str
    after: str
    worse: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that changed.

    selection: where the two were asked for different things; a check is then gone or new only in
    a level that both were asked for. figures: errors that grew, where the status did not change.
    """

    selection: list[Change]
    fingerprint: list[Change]
    status: list[Change]
    gone: list[Change]
    new: list[Change]
    figures: list[Change]

    @property
    def worse(self) -> bool:
        """Whether any check became worse, an error grew, or a check is new and bad."""
        every = [*self.status, *self.gone, *self.new, *self.figures]
        return any(change.worse for change in every)


def compare_reports(before: Report, after: Report) -> Difference:
    """Compare check by check. Speed is not compared."""
    old = {row.check: row for row in before.results}
    new = {row.check: row for row in after.results}
    both = [key for key in old if key in new]
    asked = _asked_of_both(before, after)
    status = [_status(old[key], new[key]) for key in both if old[key].status != new[key].status]
    return Difference(
        selection=list(_selection(before, after)),
        fingerprint=list(_facts(before.fingerprint, after.fingerprint)),
        status=sorted(status, key=lambda change: not change.worse),
        gone=[_gone(row) for row in before.results if row.check not in new and row.level in asked],
        new=[_new(row) for row in after.results if row.check not in old and row.level in asked],
        figures=[change for key in both for change in _figures(old[key], new[key])],
    )


def difference_text(found: Difference) -> str:
    """One line a change; says so where there is none."""
    sections = {
        "selection (what only one was asked for is not compared)": found.selection,
        "fingerprint": found.fingerprint,
        "status": found.status,
        "gone": found.gone,
        "new": found.new,
        f"errors over {GROWN:g} times": found.figures,
    }
    lines = [
        f"these are two chips, {c.before} and {c.after}: what one leaves out reads as worse"
        for c in found.fingerprint
        if c.subject == "chip.name"
    ]
    for title, changes in sections.items():
        lines += [f"{title}:"] if changes else []
        lines += [
            f"  {'worse ' if c.worse else ''}{c.subject}: {c.before} -> {c.after}" for c in changes
        ]
    return "\n".join(lines or ["nothing changed"]) + "\n"


def _asked_of_both(before: Report, after: Report) -> list[Level]:
    """Levels in which a check of one report would be in the other, if the chip had it."""
    if before.only != after.only or before.interrupted or after.interrupted:
        return []
    return [level for level in before.levels if level in after.levels]


def _selection(before: Report, after: Report) -> Iterator[Change]:
    for name in ("levels", "only"):
        old, new = (", ".join(getattr(report, name)) or "all" for report in (before, after))
        if old != new:
            yield Change(name, old, new)
    if before.interrupted or after.interrupted:
        yield Change("run", _end_of(before), _end_of(after))


def _end_of(report: Report) -> str:
    return "interrupted" if report.interrupted else "to the end"


def _facts(old: Mapping[str, Any], new: Mapping[str, Any], name: str = "") -> Iterator[Change]:
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key, "none"), new.get(key, "none")
        full = f"{name}.{key}".lstrip(".")
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _facts(before, after, full)
        elif before != after:
            yield Change(full, str(before), str(after))


def _status(old: Row, new: Row) -> Change:
    worse = _RANK.index(new.status) > _RANK.index(old.status)
    return Change(new.check, old.status.value, f"{new.status.value}: {new.text}", worse)


def _gone(row: Row) -> Change:
    """A check that passed and is no longer made proves nothing any more."""
    return Change(
        row.check, row.status.value, "not in the second report", row.status is Status.PASS
    )


def _new(row: Row) -> Change:
    worse = row.status in BAD
    told = f"{row.status.value}: {row.text}" if worse else row.status.value
    return Change(row.check, "not in the first report", told, worse)


def _figures(old: Row, new: Row) -> Iterator[Change]:
    """Errors that grew; an error that was a number and is none has grown. 0 to more has, too."""
    if old.status != new.status:
        return
    for name, before in old.figures.items():
        if "error" not in name or name not in new.figures or before is None:
            continue
        after = new.figures[name]
        if after is None or after > GROWN * before:
            grown = "none" if after is None else f"{after:.3g}"
            yield Change(f"{new.check} {name}", f"{before:.3g}", grown, worse=True)
