"""Data of a chip in tab-separated files: a header line, then rows; also a matrix of versions."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from anychip.contract.build import Compatibility, Verdict


def rows(path: Path) -> list[dict[str, str]]:
    """Every row, by the names of the header line; a quote is a letter like any other."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def matrix(path: Path, here: Mapping[str, str]) -> tuple[Compatibility, ...]:
    """A version matrix: columns versions (`A=1.2; B=3.*`), verdict, source.

    here: the versions that were measured. A row whose patterns all fit them is about them.
    """
    return tuple(
        Compatibility(_versions(row["versions"], here), Verdict(row["verdict"]), row["source"])
        for row in rows(path)
    )


def _versions(text: str, here: Mapping[str, str]) -> dict[str, str]:
    """As measured where all patterns fit, else as written."""
    parts = (part.partition("=") for part in text.split(";"))
    wanted = {name.strip(): pattern.strip() for name, _, pattern in parts}
    fits = all(n in here and fnmatchcase(here[n], pattern) for n, pattern in wanted.items())
    return {name: here[name] for name in wanted} if fits else wanted
