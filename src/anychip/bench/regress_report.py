"""What `anychip regress` found, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anychip.bench.regress_judge import Outcome
from anychip.bench.regress_measure import Perplexity
from anychip.bench.regress_naming import Named
from anychip.bench.regress_speed import Speeds, Spread

SCHEMA = 2
COLUMNS = (
    *("case", "dtype", "deviation", "baseline", "limit", "differs", "perplexity"),
    *("TTFT ms", "TPOT ms", "tokens/s", "verdict"),
)
LEGEND = (
    "deviation: relative L2 of the logits (of a read prompt: of its log probabilities) against the "
    "oracle, and the one in the baseline. differs: index of the first token that is not the "
    "oracle's / not the baseline's. perplexity: the chip's, its change against the oracle's / the "
    "one in the baseline. TTFT (time to the first token), TPOT (time per token after it), tokens/s "
    "(prompts and answers): median [interval of it, 95 % from 6 runs on] / the baseline's median."
)


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
    """Cells of the table, in the order of COLUMNS."""
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
        _differs(outcome),
        _perplexity(now.perplexity, None if before is None else before.change),
        *(with_baseline(found, text) for found, text in zip(spreads(outcome), TEXTS, strict=True)),
        verdict + notes,
    )


TEXTS = ("{:.2f}", "{:.2f}", "{:,.0f}")
"""How milliseconds, milliseconds and tokens a second are written."""

Pair = tuple[Spread | None, Spread | None]


def spreads(outcome: Outcome) -> tuple[Pair, Pair, Pair]:
    """TTFT, TPOT and throughput, each now and in the baseline."""
    before = None if outcome.before is None else outcome.before.speeds
    now, then = _three(outcome.now.speeds), _three(before)
    return (now[0], then[0]), (now[1], then[1]), (now[2], then[2])


def _three(speeds: Speeds | None) -> tuple[Spread | None, Spread | None, Spread | None]:
    if speeds is None:
        return None, None, None
    return speeds.ttft, speeds.tpot, speeds.throughput


def with_baseline(found: Pair, text: str) -> str:
    """Median, interval and the baseline's median."""
    now, before = found
    if now is None:
        return "-"
    median, low, high = map(text.format, now)
    shown = f"{median} [{low}, {high}]"
    return shown if before is None else f"{shown} / {text.format(before.median)}"


def _differs(outcome: Outcome) -> str:
    found = (outcome.now.differs, outcome.changed)
    return "-" if found == (None, None) else "/".join("-" if n is None else str(n) for n in found)


def _perplexity(found: Perplexity | None, before: float | None) -> str:
    if found is None:
        return "-"
    shown = f"{found.chip:.5g} {found.change:+.1e}"
    return shown if before is None else f"{shown} / {before:+.1e}"


def markdown(report: Report) -> str:
    """The report for people."""
    lines = [
        f"# anychip regress: {report.summary}",
        "",
        f"{report.date}, fingerprint {report.fingerprint_id}. {report.compared}",
        "",
        *(f"* {line}" for line in where(report)),
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in rows(report)),
    ]
    lines += ["", LEGEND]
    if report.worse:
        lines += ["", "What is worse:", ""]
        for key, texts in failures(report).items():
            lines += [f"* {key}", *(f"  * {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def where(report: Report) -> list[str]:
    """Backend, device, driver and SDK, and versions: what a baseline is of."""
    found = report.fingerprint
    device = found.get("device", {})
    named = f"device {device.get('index', '?')}: {device.get('name', 'unknown')}"
    versions = found.get("versions", {})
    own = {"anychip": found.get("anychip"), "contract": found.get("contract")}
    both = {**own, **versions}
    return [
        f"backend {report.backend}, {named}",
        "versions: " + ", ".join(f"{name} {value}" for name, value in both.items() if value),
    ]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def as_json(report: Report) -> dict[str, Any]:
    """The report for machines. An infinite deviation becomes null."""
    found: dict[str, Any] = {"schema": SCHEMA, **asdict(report)}
    found["worse"] = len(report.worse)
    for outcome in found["outcomes"]:
        outcome["ok"] = not outcome["failed"]
        _tell_change(outcome["now"]["perplexity"])
        if outcome["now"]["deviation"] == float("inf"):
            outcome["now"]["deviation"] = None
    return found


def _tell_change(perplexity: dict[str, float] | None) -> None:
    if perplexity is not None:
        perplexity["change"] = perplexity["chip"] / perplexity["reference"] - 1
