"""A report as text for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anychip.conform.proof import Level, Status
from anychip.conform.report import Report, Row

TOLD = (Status.FAIL, Status.MISSING, Status.INCONCLUSIVE)
"""What nobody may overlook: told in full, worst first."""


def to_text(report: Report, *, verbose: bool = False) -> str:
    """Levels with their counts, then what is not in order; verbose: every result."""
    chip = report.fingerprint.get("chip", {})
    lines = [f"{chip.get('name')} {_versions(report)}".rstrip()]
    lines += _aligned(_counts(report))
    for row in _worst_first(report.results) if verbose else told(report):
        whole = row.check == row.level.value
        name = row.check if whole else f"{row.level.value}  {row.check}"
        lines.append(f"{row.status.value:12}  {name}: {row.text}")
    if not verbose:
        lines += [f"UNSUPPORTED   {text}: {keys}" for text, keys in _unsupported(report)]
    return "\n".join(lines) + "\n"


def to_markdown(report: Report) -> str:
    """The same with every result, as tables."""
    rows = [
        [row.status.value, row.check, row.text, f"{row.seconds:.2f}"]
        for row in _worst_first(report.results)
    ]
    facts = [[name, _fact(value)] for name, value in report.fingerprint.items()]
    parts = [
        f"# Conformance of {report.fingerprint.get('chip', {}).get('name')}",
        f"{report.date}, fingerprint {report.fingerprint_id}",
        _table([["what", "value"], *facts]),
        _table(_counts(report)),
        _table([["status", "check", "text", "seconds"], *rows]),
    ]
    return "\n\n".join(parts) + "\n"


def told(report: Report) -> list[Row]:
    """What nobody may overlook: bad and inconclusive results, and limits that a chip widened."""
    wide = [row for row in report.rows(Status.PASS) if tolerance(row) > 1]
    return [row for status in TOLD for row in report.rows(status)] + wide


def tolerance(row: Row) -> float:
    """The largest factor by which an implementation widens its error limit; 1: none does."""
    return row.figures.get("tolerance") or 1.0


def _worst_first(rows: Sequence[Row]) -> list[Row]:
    order = [*TOLD, Status.UNSUPPORTED, Status.PASS]
    return sorted(rows, key=lambda row: order.index(row.status))


def _counts(report: Report) -> list[list[str]]:
    table = [["level", *(status.value for status in Status), "seconds"]]
    for level, counts in report.summary.items():
        seconds = sum(row.seconds for row in report.results if row.level is Level(level))
        numbers = [str(counts.get(status.value, 0)) for status in Status]
        table.append([level, *numbers, f"{seconds:.1f}"])
    return table


def _unsupported(report: Report) -> Iterator[tuple[str, str]]:
    """One line for each declaration: its text, the checks that it answers.

    Texts that differ in the subject alone, which they quote, are one line.
    """
    keys: dict[str, list[str]] = {}
    for row in report.rows(Status.UNSUPPORTED):
        subject = row.check.partition(" ")[2]
        keys.setdefault(row.text.replace(repr(subject), "'…'"), []).append(row.check)
    for text, found in keys.items():
        rest = f" and {len(found) - 3} more" if len(found) > 4 else ""
        yield text, ", ".join(found[: 3 if rest else 4]) + rest


def _versions(report: Report) -> str:
    versions = report.fingerprint.get("versions", {})
    return "(" + ", ".join(f"{n} {v}" for n, v in versions.items()) + ")" if versions else ""


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {part}" for name, part in value.items()) or "none"
    return str(value)


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        f"  {row[0]:{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in table
    ]


def _table(table: Sequence[Sequence[str]]) -> str:
    head, *rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in table]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
