"""The generated parts of docs/kunlun.md. Run as a program, this file renews them."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY / "tests" / "simulators" / "kunlun"))
from sim_trees import HOME, shared_tree, with_accounts  # noqa: E402

PAGE = REPOSITORY / "docs" / "kunlun.md"
KERNELS = REPOSITORY / "src" / "anychip" / "chips" / "kunlun" / "kernels"
RENEW = "python tests/house/test_kunlun_doc.py"
LINKING = [PAGE, REPOSITORY / "README.md", REPOSITORY / "docs" / "new_chip.md"]

Row = Mapping[str, str]
MARKS = ("header", "call site", "guess")
PARTS = {
    "runtime": "libxpurt",
    "telemetry": "libxpuml",
    "xdnn": "libxpuapi, plain operators",
    "llm": "the operators of language models",
    "bkcl": "libbkcl",
}
"""abi_NAME.tsv -> what it is about."""


def rows(table: str) -> list[Row]:
    with (KERNELS / f"{table}.tsv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def drawn(lines: Iterable[tuple[str, ...]]) -> str:
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *body))


def counted(column: str, among: list[Row], marks: tuple[str, ...] = MARKS) -> str:
    """Rows by mark, in the order of the marks. A mark that is none of them is an error."""
    found = Counter(row[column] for row in among)
    assert not set(found) - set(marks), found
    return " / ".join(str(found[mark]) for mark in marks)


def line_of_marks(name: str, about: str, table: list[Row]) -> tuple[str, ...]:
    functions = [row for row in table if row["kind"] == "function"]
    others = [row for row in table if row["kind"] != "function"]
    named = [row for row in table if row["symbol_evidence"]]
    return (
        name,
        about,
        counted("evidence", functions),
        counted("evidence", others),
        counted("symbol_evidence", named, ("header", "call site", "log", "guess")),
    )


def marks() -> str:
    """How much of the interface is known, counted in the tables, and of the chip's operators."""
    tables = {part: rows(f"abi_{part}") for part in PARTS}
    lines = [line_of_marks(f"abi_{p}.tsv", PARTS[p], table) for p, table in tables.items()]
    lines.append(line_of_marks("together", "", [row for t in tables.values() for row in t]))
    heads = ("table", "of", "functions", "constants, fields, types", "linker's names")
    operators = rows("operators")
    assumed = [row for row in operators if row["assumed"]]
    return (
        "Functions, and constants with their like: read in a header / seen at a call site / guess."
        f" The linker's names: header / call site / log / guess.\n\n{drawn([heads, *lines])}\n\n"
        f"Of the {len(operators)} rows of `operators.tsv`, {counted('evidence', operators)} rest"
        f" on a header / a call site / a guess, and {len(assumed)} assume something of what the"
        " call means."
    )


def checklist() -> str:
    """What `anychip coverage --backend kunlun --catalogue --markdown` says on the simulator."""
    tree = shared_tree("--devices", "3")
    given = {
        "sdk_root": tree / "sdk",
        "runtime_lib": tree / "runtime" / "lib",
        "build_dir": HOME / "shim",
    }
    options = [word for key, path in given.items() for word in ("--chip-option", f"{key}={path}")]
    asked = ["--backend", "kunlun", "--catalogue", "--markdown", *options]
    with tempfile.TemporaryDirectory() as folder:
        board = with_accounts(tree, Path(folder)).state
        told = subprocess.run(
            [sys.executable, "-m", "anychip", "coverage", *asked],
            env=os.environ | {"XPUSIM_STATE": str(board)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout.strip()


GENERATED: Mapping[str, Callable[[], str]] = {"marks": marks, "checklist": checklist}


def split(page: str, name: str) -> tuple[str, str, str]:
    """What stands before a generated part, the part, and what follows."""
    marks = rf"(.*<!-- {name}: generated [^\n]*-->\n)(.*)(<!-- end of {name} -->.*)"
    found = re.fullmatch(marks, page, re.DOTALL)
    assert found, f"there is no part {name!r} between its marks"
    return found[1], found[2].strip("\n"), found[3]


def renewed(page: str) -> str:
    for name, make in GENERATED.items():
        before, _, after = split(page, name)
        page = f"{before}\n{make()}\n\n{after}"
    return page


@pytest.mark.parametrize("name", GENERATED)
def test_generated_part_is_what_the_command_says_today(name: str) -> None:
    _, part, _ = split(PAGE.read_text(encoding="utf-8"), name)
    assert part == GENERATED[name](), f"docs/kunlun.md is stale; renew it with: {RENEW}"


def test_parts_are_found_and_replaced() -> None:
    page = "a\n<!-- marks: generated by x -->\n\nold\n| line |\n\n<!-- end of marks -->\nb\n"
    assert split(page, "marks")[1] == "old\n| line |"
    with pytest.raises(AssertionError, match="checklist"):
        split(page, "checklist")


def test_an_unknown_mark_is_an_error() -> None:
    with pytest.raises(AssertionError):
        counted("evidence", [{"evidence": "hearsay"}])


def test_every_table_of_the_interface_is_counted() -> None:
    assert {f.name for f in KERNELS.glob("abi_*.tsv")} == {f"abi_{part}.tsv" for part in PARTS}


@pytest.mark.parametrize("page", LINKING, ids=[p.name for p in LINKING])
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert targets
    assert [t for t in targets if not (page.parent / t).exists()] == []


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"renewed {', '.join(GENERATED)} in {PAGE}")
