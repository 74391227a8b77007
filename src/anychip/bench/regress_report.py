"""What `anychip regress` found, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anychip.bench.regress_judge import Outcome
from anychip.bench.regress_measure import Named

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
    named: Mapping[str, Named] = field(default_factory=dict)

    @property
    def worse(self) -> list[Outcome]:
        """Cases beyond their limits."""
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def summary(self) -> str:
        """One line."""
        count, worse = len(self.outcomes), len(self.worse)
        text = f"{counted(count)} on {self.backend}: "
        if count == 1:
            return text + ("worse" if worse else "not worse")
        return text + (f"{worse} worse" if worse else "none is worse")


def counted(cases: int) -> str:
    """A number of cases in words."""
    return "1 case" if cases == 1 else f"{cases} cases"


def failures(report: Report) -> dict[str, list[str]]:
    """Of each case that is worse: why, then what diverges and how to run it again."""
    found = {outcome.key: list(outcome.failed) for outcome in report.worse}
    for key, named in report.named.items():
        found[key] += [text for text in (named.what, named.saved) if text]
    return found


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
    if report.worse:
        lines += ["", "What is worse:", ""]
        for key, texts in failures(report).items():
            lines += [f"* {key}", *(f"  * {text}" for text in texts)]
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
