"""The telemetry header and library against the ABI table: both sides, each on its own."""

import csv
import re
import subprocess
from pathlib import Path

import pytest
from sim_trees import TABLES, shared_tree

ROWS = list(csv.DictReader((TABLES / "abi_telemetry.tsv").open(), delimiter="\t"))


def rows(kind: str) -> dict[str, str]:
    return {row["name"]: row["declaration"] for row in ROWS if row["kind"] == kind}


def c_said(tmp_path: Path, lines: list[str]) -> list[str]:
    """What a C program that includes the header prints, one line for each statement."""
    body = "\n".join(lines)
    (tmp_path / "ask.c").write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <stdint.h>\n"
        f"#include <xpu/xpuml.h>\nint main(void) {{\n{body}\nreturn 0; }}\n"
    )
    include = shared_tree() / "sdk" / "include"
    command = ["gcc", "-std=c11", "-Wall", "-Werror", f"-I{include}", "ask.c", "-o", "ask"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ended = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def test_enumerators_have_the_values_of_the_table(tmp_path: Path):
    wanted = rows("enum")
    assert len(wanted) > 40
    found = c_said(tmp_path, [f'printf("%d\\n", (int){name});' for name in wanted])
    assert dict(zip(wanted, found, strict=True)) == wanted


def test_structs_have_the_sizes_of_the_table(tmp_path: Path):
    wanted = rows("struct")
    found = c_said(tmp_path, [f'printf("%zu\\n", sizeof({name}));' for name in wanted])
    assert dict(zip(wanted, found, strict=True)) == wanted


def test_fields_have_the_offsets_and_types_of_the_table(tmp_path: Path):
    wanted = rows("field")
    lines = []
    for name, declaration in wanted.items():
        struct, _, field = name.partition(".")
        kind = declaration.split()[2].partition("[")
        members = f"sizeof((({struct}*)0)->{field}) / sizeof({kind[0]})"
        lines.append(f'printf("offset %zu of %zu\\n", offsetof({struct}, {field}), {members});')
    found = dict(zip(wanted, c_said(tmp_path, lines), strict=True))
    for name, declaration in wanted.items():
        _, offset, kind = declaration.split()
        count = kind.partition("[")[2].rstrip("]") or "1"
        assert found[name] == f"offset {offset} of {count}", name


def test_every_field_of_the_header_is_in_the_table(tmp_path: Path):
    text = (shared_tree() / "sdk" / "include" / "xpu" / "xpuml.h").read_text()
    fields = []
    for body, struct in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.S):
        fields += [f"{struct}.{name}" for name in re.findall(r"(\w+)(?:\[\w+\])?;", body)]
    assert set(fields) == set(rows("field"))


def test_prototypes_of_the_header_are_those_of_the_table():
    text = (shared_tree() / "sdk" / "include" / "xpu" / "xpuml.h").read_text()
    found = {
        re.search(r"(\w+)\(", declaration)[1]: " ".join(declaration.split())
        for declaration in re.findall(r"XPUML_API ([^;{]+\));", text)
    }
    assert found == rows("function")


def test_the_library_exports_the_functions_of_the_table_and_nothing_else():
    library = shared_tree() / "runtime" / "lib" / "libxpuml.so.1"
    command = ["nm", "-D", "--defined-only", "-P", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = {row["symbol"] for row in ROWS if row["kind"] == "function"}
    assert {line.split()[0] for line in listed.splitlines()} == symbols


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_row_says_where_it_was_seen(row):
    assert row["evidence"] in ("header", "call site", "guess")
    assert row["library"] == "xpuml" and row["seen_in"] and "/" in row["source"]
    assert (row["kind"] == "function") == bool(row["symbol"]) == bool(row["symbol_evidence"])
