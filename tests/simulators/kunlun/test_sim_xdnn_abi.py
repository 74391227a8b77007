"""abi_xdnn.tsv against the simulator's headers and library, and the base types in a program."""

import re
import subprocess
from pathlib import Path

import pytest
from sim_trees import NATIVE, TABLES, shared_tree, with_accounts
from sim_xdnn_card import NAMESPACE, table

HEADERS = NATIVE / "include" / "xpu" / "refactor"
OPERATORS = ("math.h", "nn_activation.h", "nn_embedding.h")
COLUMNS = [
    *("kind", "name", "library", "declaration", "evidence"),
    *("symbol", "symbol_evidence", "seen_in", "source"),
]
KINDS = {"function", "enum", "struct", "field", "type", "variable"}
BASE = Path(__file__).with_name("sim_xdnn_base.cpp")


@pytest.fixture(scope="module")
def tree() -> Path:
    return shared_tree()


def rows(kind: str) -> list[dict[str, str]]:
    return [row for row in table() if row["kind"] == kind]


def run(*command: object) -> str:
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def declared() -> set[str]:
    """The operators of the headers, each in one line."""
    found: set[str] = set()
    for name in OPERATORS:
        text = re.sub(r"//[^\n]*", "", (HEADERS / name).read_text())
        for match in re.findall(r"template <[^>]*>\s*DLL_EXPORT[^;]*;", text):
            found.add(re.sub(r"\s+", " ", match.replace("DLL_EXPORT ", "")).rstrip(";"))
    return found


def test_the_table_is_well_formed() -> None:
    names = [(row["kind"], row["name"]) for row in table()]
    assert len(set(names)) == len(names)
    for row in table():
        assert list(row) == COLUMNS and row["kind"] in KINDS and row["library"] == "xpuapi"
        assert row["evidence"] in ("header", "call site", "guess"), row["name"]
        assert row["source"] and row["seen_in"], row["name"]
        wanted = ("header", "call site", "log", "guess") if row["kind"] == "function" else ("",)
        assert row["symbol_evidence"] in wanted, row["name"]
        assert bool(row["symbol"]) == (row["kind"] == "function"), row["name"]


def test_declarations_are_those_of_the_headers() -> None:
    templates = {r["declaration"] for r in rows("function") if r["declaration"].startswith("t")}
    assert templates == declared()


def test_the_library_exports_the_symbols_and_no_others(tree: Path) -> None:
    listing = run("nm", "-D", "--defined-only", tree / "sdk" / "lib" / "libxpuapi.so")
    exported = {line.split()[-1] for line in listing.splitlines()}
    cells = [cell for row in rows("function") for cell in row["symbol"].split(";")]
    listed = {cell.rsplit(":", 1)[-1] for cell in cells}
    assert listed - exported == set()
    form = re.compile(r"_ZN5baidu3xpu3api\d+[a-z_0-9]+I\w+iPNS1_7Cont")
    others = "".join(file.read_text() for file in sorted(TABLES.glob("abi_*.tsv")))
    assert {s for s in exported if form.match(s) and s not in others} == set()


def test_symbols_are_the_instantiations_that_the_table_says(tree: Path) -> None:
    spelled = {
        "int64_t": "long",
        "int32_t": "int",
        "int8_t": "signed char",
        "uint8_t": "unsigned char",
    }
    for row in rows("function"):
        if not row["declaration"].startswith("template"):
            continue
        for cell in row["symbol"].split(";"):
            kinds, symbol = cell.split(":")
            types = [kind.split("=")[1] for kind in kinds.split(",")]
            wanted = ", ".join(spelled.get(t, t) for t in types)
            plain = run("c++filt", symbol).strip()
            assert plain.startswith(f"int {row['name']}<{wanted}>({NAMESPACE}Context*"), plain


def test_values_sizes_and_offsets_hold_in_the_compiler(tree: Path, tmp_path: Path) -> None:
    lines = ["#include <cstddef>", '#include "xpu/xdnn.h"', "using namespace baidu::xpu::api;"]
    for row in rows("enum"):
        lines.append(f"static_assert(static_cast<int>({row['name']}) == {row['declaration']});")
    for row in rows("struct"):
        lines.append(f"static_assert(sizeof({row['name']}) == {row['declaration']});")
    for row in rows("field"):
        owner, member = row["name"].rsplit(".", 1)
        offset = row["declaration"].split()[1]
        lines.append(f"static_assert(offsetof({owner}, {member}) == {offset});")
    for row in rows("type"):
        lines.append(f"static_assert(sizeof({row['name']}) > 0);")
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join([*lines, ""]))
    assert sum("static_assert" in line for line in lines) > 30
    run("g++", "-std=c++17", "-fsyntax-only", f"-I{tree}/sdk/include", source)


def test_base_types_in_a_program(tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "base"
    folders = (tree / "sdk" / "lib", tree / "runtime" / "lib")
    links = [f"-L{folder}" for folder in folders]
    run("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tree}/sdk/include", BASE,
        *links, "-lxpuapi", "-lxpurt", "-o", program)  # fmt: skip
    used = with_accounts(tree, tmp_path / "state")
    ended = subprocess.run([program], env=used.environment(), capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    (told,) = ended.stderr.splitlines()
    assert "[xdnn] scratch of 4096 bytes at" in told and "is not given back" in told
