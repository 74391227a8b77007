"""What the doctor says of versions: those that are here, and whether they go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anychip.contract.build import Build, Compatibility, Finding, Verdict
from anychip.contract.layer import empty_slots

MOST_ROWS = 3
"""Rows of the version matrix that a step names."""

_SAYS = {
    Verdict.GOOD: "recorded as good in",
    Verdict.BAD: "do not go together, recorded in",
    Verdict.UNKNOWN: "in doubt, see",
}


def version_findings(build: Build) -> Iterator[Finding]:
    """The versions that are here, and what the chip's own matrix says of them."""
    text = ", ".join(f"{name} {version}" for name, version in build.versions().items())
    yield Finding("versions", Verdict.GOOD, text or "the chip tells none")
    yield from _matrix(build)


def _matrix(build: Build) -> Iterator[Finding]:
    """What the chip's own matrix says of the versions that are here."""
    if "matrix" in empty_slots(type(build)):
        return
    here, matrix = build.versions(), build.matrix()
    rows = [row for row in matrix if row.fits(here)]
    troubled = [row for row in rows if row.verdict is not Verdict.GOOD]
    troubled.sort(key=lambda row: row.verdict is not Verdict.BAD)
    # One suggestion for all lines, the worst one's: two sets would contradict each other.
    others = [row for row in matrix if row in troubled or row not in rows]
    together = good_rows(others, troubled[0].versions) if troubled else ""
    for row in rows:
        good = row.verdict is Verdict.GOOD
        step = "" if good else f"install versions that go together{together}"
        text = f"{_named(row.versions)}: {_SAYS[row.verdict]} {row.source}"
        yield Finding("version matrix", row.verdict, text, step)
    if not rows:
        text = "not seen: no row of the chip's matrix is about these versions"
        step = "anychip conform proves what a row would only record"
        yield Finding("version matrix", Verdict.UNKNOWN, text, step)


def _named(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def good_rows(matrix: Iterable[Compatibility], names: Iterable[str]) -> str:
    """Versions of these parts that are recorded as good, nearest rows first; may be empty.

    A set that another row doubts is left out.
    """
    asked, known = frozenset(names), tuple(matrix)
    doubts = [row for row in known if row.verdict is not Verdict.GOOD]
    good = [row for row in known if row.verdict is Verdict.GOOD and asked & set(row.versions)]
    good = [row for row in good if not any(doubt.fits(row.versions) for doubt in doubts)]
    good.sort(key=lambda row: len(asked & set(row.versions)), reverse=True)
    told = "; or ".join(_named(row.versions) for row in good[:MOST_ROWS])
    return f", recorded as good: {told}" if told else ""
