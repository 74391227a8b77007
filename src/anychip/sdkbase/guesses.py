"""What a chip assumes of its vendor: rows of its tables whose evidence is a guess."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from anychip.contract.build import Finding, Verdict
from anychip.sdkbase.table import rows

STEP = "on a real SDK: anychip doctor --model-path compares each with the oracle"


def guesses_in_use(
    tables: Iterable[Path], operators: Path, code: Iterable[Path]
) -> Iterator[Finding]:
    """A yellow finding, or none.

    tables: of the vendor's interface (columns name, evidence); of these, what the chip's own code
    names. operators: the operators' table (columns operator, assumed).
    """
    words = set(re.findall(r"\w+", "\n".join(file.read_text() for file in code)))
    known = (row for file in sorted(tables) for row in rows(file))
    guesses = [row["name"] for row in known if row["evidence"] == "guess"]
    used = [name for name in guesses if name.rpartition("::")[2] in words]
    assumed = [row["operator"] for row in rows(operators) if row["assumed"]]
    if used or assumed:
        text = f"assumed of the vendor's interface, {len(used)} rows: {', '.join(used)}; of its "
        text += f"semantics, {len(assumed)} operators: {', '.join(dict.fromkeys(assumed))}"
        yield Finding("assumed", Verdict.UNKNOWN, text, STEP)
