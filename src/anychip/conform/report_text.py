"""A report as text for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anychip.conform.index import CHECKS
from anychip.conform.proof import Level, Status
from anychip.conform.report import Report, Row

TOLD = (Status.FAIL, Status.MISSING, Status.INCONCLUSIVE)
"""What nobody may overlook: told in full, worst first."""


def to_text(report: Report, *, verbose: bool = False) -> str:
    """Levels with their counts, then what is not in order; verbose: every result."""
    chip = report.fingerprint.get("chip", {})
    lines = [f"{chip.get('name')} {_versions(report)}".rstrip()]
    lines += _aligned(_counts(report))
    if verbose:
        lines += map(_line, _worst_first(report.results))
    else:
        lines += [*map(_line, told(report)), *_folded(report)]
    lines += _legend(told(report))
    return "\n".join([*lines, verdict(report)]) + "\n"


def verdict(report: Report) -> str:
    """One line: whether the chip conforms, the counts, and what it was run on.

    That it does is said of a whole run alone; of a part, that nothing is wrong in it.
    """
    chip = report.fingerprint.get("chip", {}).get("name")
    counts = [(status, len(report.rows(status))) for status in Status]
    told = ", ".join(f"{count} {status.value}" for status, count in counts if count)
    sound = "conforms" if report.whole else "keeps what was checked"
    word = sound if report.ok else "does not conform"
    ended = ", then interrupted" if report.interrupted else ""
    return f"{chip} {word}: {told}{ended}; fingerprint {report.fingerprint_id}"


def _line(row: Row) -> str:
    whole = row.check == row.level.value
    name = row.check if whole else f"{row.level.value}  {row.check}"
    return f"{row.status.value:12}  {name}: {row.text}"


def _legend(rows: Sequence[Row]) -> list[str]:
    """What the ids stand for that are told."""
    ids = {row.check.partition(" ")[0] for row in rows}
    return [f"  {id}: {text}" for id, (_, text) in CHECKS.items() if id in ids]


def to_markdown(report: Report) -> str:
    """The same with every result, as tables."""
    rows = [
        [row.status.value, row.check, row.text, f"{row.seconds:.2f}"]
        for row in _worst_first(report.results)
    ]
    facts = [[name, _fact(value)] for name, value in report.fingerprint.items()]
    parts = [
        f"# Conformance of {report.fingerprint.get('chip', {}).get('name')}",
        f"{report.date}: {verdict(report)}",
        _table([["what", "value"], *facts]),
        _table(_counts(report)),
        _table([["status", "check", "text", "seconds"], *rows]),
    ]
    return "\n\n".join(parts) + "\n"


def told(report: Report) -> list[Row]:
    """What nobody may overlook: bad and inconclusive results, and limits that a chip widened.

    A check that cannot be made because an operator is missing is told with that operator, by R1.
    """
    wide = [row for row in report.rows(Status.PASS) if tolerance(row) > 1]
    rows = [row for status in TOLD for row in report.rows(status)]
    return [row for row in rows if not _follows(row)] + wide


def _follows(row: Row) -> bool:
    return row.status is Status.MISSING and row.text.endswith("see R1")


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


def _folded(report: Report) -> Iterator[str]:
    """One line for each declaration and each thing that is missing: the checks, and the text.

    Texts that differ in the subject alone, which they quote, are one line.
    """
    rows = [row for row in report.rows(Status.MISSING) if _follows(row)]
    keys: dict[tuple[str, str], list[str]] = {}
    for row in rows + report.rows(Status.UNSUPPORTED):
        subject = row.check.partition(" ")[2]
        text = row.text.replace(repr(subject), "it") if subject else row.text
        keys.setdefault((row.status.value, text), []).append(row.check)
    for (status, text), found in keys.items():
        rest = f" and {len(found) - 3} more" if len(found) > 4 else ""
        yield f"{status:12}  {', '.join(found[: 3 if rest else 4])}{rest}: {text}"


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
