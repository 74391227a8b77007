"""abi_llm.tsv against the headers and libraries of language-model operators."""

import re
import subprocess
from pathlib import Path

import pytest
from sim_trees import NATIVE, TABLES, shared_tree
from sim_xdnn_card import table

INCLUDE = NATIVE / "include"
LAYOUT = Path(__file__).with_name("test_sim_llm_layout.cpp")
COLUMNS = [
    *("kind", "name", "library", "declaration", "evidence"),
    *("symbol", "symbol_evidence", "seen_in", "source"),
]
XFT = ("core/context.h", "core/types.h")
HEADERS = {
    "xpu/refactor/nn.h": "xpuapi",
    "xpu/refactor/fusion.h": "xpuapi",
    "xhpc/xblas/xblas_legacy_api.h": "xpu_blas",
    "xhpc/xfa/flash_api.h": "xpu_flash_attention",
    "xft/infer_ops.h": "apiinfer",
    "xft/blocks/core_attention_block.h": "xft_blocks",
}
SPELLED = {
    "int64_t": "long",
    "int32_t": "int",
    "int16_t": "short",
    "int8_t": "signed char",
}
ROWS = table(TABLES / "abi_llm.tsv")


@pytest.fixture(scope="module")
def tree() -> Path:
    return shared_tree()


def rows(*kinds: str) -> list[dict[str, str]]:
    return [row for row in ROWS if row["kind"] in kinds]


def templates() -> list[dict[str, str]]:
    return [row for row in rows("function") if row["declaration"].startswith("template")]


def run(*command: object, text: str = "") -> str:
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, input=text)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def one_line(text: str) -> str:
    return re.sub(r"\(\s+", "(", re.sub(r"\s+", " ", text.replace("DLL_EXPORT ", ""))).rstrip(";")


def plain_text(header: str) -> str:
    return re.sub(r"//[^\n]*", "", (INCLUDE / header).read_text())


def declared() -> set[tuple[str, str]]:
    """Library and declaration of each template of the headers."""
    pattern = r"template <[^>]*>\s*DLL_EXPORT[^;]*;"
    return {
        (library, one_line(match))
        for header, library in HEADERS.items()
        for match in re.findall(pattern, plain_text(header))
    }


def symbols_of(library: Path) -> dict[str, str]:
    """Exported symbols that are no data of the compiler's, with their readable names."""
    listing = run("nm", "-D", "--defined-only", library)
    names = [line.split()[-1] for line in listing.splitlines() if line.split()[-2] in "TW"]
    readable = run("c++filt", text="\n".join(names)).splitlines()
    return dict(zip(names, readable, strict=True))


def listed(library: str) -> set[str]:
    cells = [c for r in rows("function") if r["library"] == library for c in r["symbol"].split(";")]
    return {cell.rpartition(":")[2] for cell in cells}


def test_the_table_is_well_formed() -> None:
    names = [(row["kind"], row["name"]) for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert list(row) == COLUMNS and row["library"] in HEADERS.values()
        assert row["evidence"] in ("header", "call site", "guess"), row["name"]
        assert row["source"] and row["seen_in"] and row["declaration"], row["name"]
        wanted = ("call site", "guess") if row["kind"] == "function" else ("",)
        assert row["symbol_evidence"] in wanted, row["name"]
        assert bool(row["symbol"]) == (row["kind"] == "function"), row["name"]


def test_a_guess_says_what_is_guessed() -> None:
    unsaid = ("guess", "ours:", "no public call")
    for row in ROWS:
        if "guess" in (row["evidence"], row["symbol_evidence"]) and row["kind"] == "function":
            assert any(word in row["source"] for word in unsaid) or row["evidence"] != "guess", row


def test_declarations_are_those_of_the_headers() -> None:
    assert {(row["library"], row["declaration"]) for row in templates()} == declared()


def test_members_are_those_of_the_headers() -> None:
    text = one_line(" ".join(plain_text(f"xft/{header}") for header in XFT))
    for row in rows("function"):
        if not row["declaration"].startswith("template"):
            assert row["declaration"] in text, row["name"]


@pytest.mark.parametrize("library", HEADERS.values())
def test_the_library_exports_what_the_table_says(tree: Path, library: str) -> None:
    exported = symbols_of(tree / "sdk" / "lib" / f"lib{library}.so")
    assert listed(library) - set(exported) == set()


@pytest.mark.parametrize("library", sorted(set(HEADERS.values()) - {"xpuapi"}))
def test_the_library_exports_nothing_else(tree: Path, library: str) -> None:
    exported = symbols_of(tree / "sdk" / "lib" / f"lib{library}.so")
    ours = {s for s, name in exported.items() if not re.match(r"(void )?(std|xpusim)::", name)}
    assert ours - listed(library) == set()


def test_symbols_are_the_instantiations_that_the_table_says() -> None:
    cells = [(row, cell) for row in templates() for cell in row["symbol"].split(";")]
    readable = run("c++filt", text="\n".join(c.rpartition(":")[2] for _, c in cells)).splitlines()
    for (row, cell), name in zip(cells, readable, strict=True):
        bound = [part.split("=") for part in cell.rpartition(":")[0].split(",")]
        head = re.match(r"template <(.*?)> int", row["declaration"])
        assert head is not None
        parameters = [p.split("=")[0].split()[-1] for p in head[1].split(", ")]
        assert [name for name, _ in bound] == parameters, row["name"]
        types = ", ".join(SPELLED.get(kind, kind) for _, kind in bound)
        function = row["name"].split("<")[0]
        assert name.startswith(f"int {function}<{types}>("), cell


def test_structs_and_enums_are_those_of_the_headers(tmp_path: Path) -> None:
    program = tmp_path / "layout"
    run("g++", "-std=c++17", f"-I{INCLUDE}", f"-I{INCLUDE / 'xft'}", LAYOUT, "-o", program)
    found = [tuple(line.split("\t")) for line in run(program).splitlines()]
    wanted = [(r["kind"], r["name"], r["declaration"]) for r in rows("struct", "field")]
    assert found == wanted
    text = one_line(plain_text("xft/core/types.h"))
    for row in rows("enum"):
        assert f"{row['name'].rpartition('::')[2]} = {row['declaration']}," in text, row["name"]
