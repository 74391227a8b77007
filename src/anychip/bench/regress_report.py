"""What `anychip regress` found, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anychip.bench.regress_judge import Outcome

SCHEMA = 1
COLUMNS = ("case", "dtype", "deviation", "baseline", "limit", "prefill", "decode", "verdict")


@dataclass(frozen=True)
class Report:
    """One run. compared: which baseline, in words. named: case -> the operator that diverges.

    fingerprint: as in `run/fingerprint.py`.
    """

    backend: str
    date: str
    fingerprint: Mapping[str, Any]
    fingerprint_id: str
    compared: str
    outcomes: Sequence[Outcome]
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def worse(self) -> list[Outcome]:
        """Cases beyond their limits."""
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def summary(self) -> str:
        """One line."""
        count, worse = len(self.outcomes), len(self.worse)
        text = f"{count} cases on {self.backend}: "
        return text + (f"{worse} worse" if worse else "none is worse")


def rows(report: Report) -> list[tuple[str, ...]]:
    """Cells of the table, in the order of COLUMNS. Speeds are tokens a second, now/baseline."""
    return [_row(outcome) for outcome in report.outcomes]


def _row(outcome: Outcome) -> tuple[str, ...]:
    now, before = outcome.now, outcome.before
    verdict = "worse: " + "; ".join(outcome.failed) if outcome.failed else "ok"
    notes = f" ({', '.join(outcome.notes)})" if outcome.notes else ""
    return (
        outcome.key,
        now.dtype,
        f"{now.deviation:.3g}",
        "-" if before is None else f"{before.deviation:.3g}",
        f"{outcome.limit:.3g}",
        _speed(now.prefill, before.prefill if before else None),
        _speed(now.decode, before.decode if before else None),
        verdict + notes,
    )


def _speed(now: float | None, before: float | None) -> str:
    if now is None:
        return "-"
    return f"{now:,.0f}" if before is None else f"{now:,.0f}/{before:,.0f}"


def markdown(report: Report) -> str:
    """The report for people."""
    lines = [
        f"# anychip regress: {report.summary}",
        "",
        f"{report.date}, fingerprint {report.fingerprint_id}. {report.compared}",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in rows(report)),
    ]
    if report.named:
        lines += ["", "What diverges:", ""]
        lines += [f"* {key}: {text}" for key, text in report.named.items()]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def as_json(report: Report) -> dict[str, Any]:
    """The report for machines. An infinite deviation becomes null."""
    found: dict[str, Any] = {"schema": SCHEMA, **asdict(report)}
    found["worse"] = len(report.worse)
    for outcome in found["outcomes"]:
        outcome["ok"] = not outcome["failed"]
        if outcome["now"]["deviation"] == float("inf"):
            outcome["now"]["deviation"] = None
    return found
