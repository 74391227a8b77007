"""The table of the runtime's ABI against the simulator's headers and library."""

import csv
import os
import re
import subprocess
from pathlib import Path

import pytest
from sim_runtime_tree import NATIVE, Tree, compile_native

TABLE = NATIVE.parents[3] / "src/anychip/chips/kunlun/kernels/abi_runtime.tsv"
HEADERS = ("defs", "runtime")
COLUMNS = ["kind", "name", "library", "declaration", "evidence", "symbol", "symbol_evidence"]
NEW_IN_XRE_5 = {"xpu_memcpy_async", "xpu_event_query"}


def table() -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def rows(kind: str) -> list[dict[str, str]]:
    return [row for row in table() if row["kind"] == kind]


def exported_functions() -> list[dict[str, str]]:
    return [row for row in rows("function") if row["symbol"]]


def compiles(tmp_path: Path, body: str, major: int = 5) -> str:
    """Empty where it compiles, else what the compiler said."""
    source = tmp_path / "check.cpp"
    source.write_text(f'#include <type_traits>\n#include "xpu/runtime.h"\n{body}\n')
    version = f"-DXPURT_VERSION_MAJOR={major}"
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{NATIVE / 'include'}", version, source]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_the_table_has_its_columns_and_names_each_thing_once():
    assert TABLE.read_text().splitlines()[0].split("\t") == [*COLUMNS, "seen_in", "source"]
    names = [(row["kind"], row["name"]) for row in table()]
    assert len(names) == len(set(names))
    for row in table():
        assert None not in row and None not in row.values(), row["name"]
        assert row["library"] == "xpurt", row["name"]
        assert row["evidence"] in ("header", "call site", "guess"), row["name"]
        assert row["seen_in"] and row["source"], row["name"]
        said = row["evidence"] != "guess" or "guess" in row["source"]
        said &= row["symbol_evidence"] != "guess" or "linkage" in row["source"]
        assert said, f"{row['name']}: what is guessed?"


def test_each_declaration_of_the_table_is_that_of_the_header(tmp_path: Path):
    """A second declaration of another type is an error; default arguments cannot be repeated."""
    lines = [re.sub(r" = \w+", "", row["declaration"]) + ";" for row in exported_functions()]
    lines += [row["declaration"] + ";" for row in rows("type")]
    body = 'extern "C" {\n' + "\n".join(lines) + "\n}"
    assert compiles(tmp_path, body) == ""
    assert "error" in compiles(tmp_path, body.replace("uint64_t sz", "uint32_t sz", 1))


def test_the_inline_functions_of_the_table_are_those_of_the_header(tmp_path: Path):
    checks = [
        "static_assert(std::is_same_v<decltype(&xpu_strerror), const char* (*)(int)>);",
        "static_assert(std::is_same_v<decltype(&xpu_device_model_str), const char* (*)(int)>);",
    ]
    assert compiles(tmp_path, "\n".join(checks)) == ""
    inline = {row["name"]: row["declaration"] for row in rows("function") if not row["symbol"]}
    assert inline == {
        name: f"static inline const char* {name}(int {argument})"
        for name, argument in (("xpu_strerror", "e"), ("xpu_device_model_str", "model"))
    }


def test_default_arguments_of_the_table_are_those_of_the_header(tmp_path: Path):
    """Each call leaves out what the table says can be left out."""
    calls = []
    for row in exported_functions():
        arguments = re.search(r"\((.*)\)$", row["declaration"]).group(1).split(", ")
        needed = [argument for argument in arguments if "=" not in argument]
        if len(needed) == len(arguments):
            continue
        types = [re.sub(r"\w+$", "", a) for a in needed]
        values = ", ".join(f"std::declval<{kind}>()" for kind in types)
        calls.append(f"using T_{row['name']} = decltype({row['name']}({values}));")
    assert len(calls) == 7
    assert compiles(tmp_path, "#include <utility>\n" + "\n".join(calls)) == ""


def test_each_number_of_the_table_is_that_of_the_header(tmp_path: Path):
    checks = [f"static_assert({row['name']} == {row['declaration']});" for row in rows("enum")]
    assert compiles(tmp_path, "\n".join(checks)) == ""
    assert "error" in compiles(tmp_path, "static_assert(XPU_HOST_TO_DEVICE == 0);")


def test_the_table_leaves_nothing_of_the_headers_out():
    text = "".join((NATIVE / "include/xpu" / f"{name}.h").read_text() for name in HEADERS)
    enumerators = set(re.findall(r"^ +(\w+) = [\w()]+,", text, re.MULTILINE))
    functions = set(re.findall(r"^DLL_PUBLIC int (\w+)\(", text, re.MULTILINE))
    assert enumerators == {row["name"] for row in rows("enum")}
    assert functions == {row["name"] for row in exported_functions()}
    assert set(re.findall(r"^typedef .*?(\w+);", text, re.MULTILINE)) == {
        row["name"] for row in rows("type")
    }


def exported_symbols(library: Path) -> set[str]:
    command = ["nm", "-D", "--defined-only", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1] for line in listed.splitlines() if " T " in line}
    return {name for name in symbols if "xpusim" not in name}


@pytest.mark.parametrize("major", [4, 5])
def test_the_library_exports_what_the_table_says(built_runtimes: dict[int, Path], major: int):
    wanted = {row["symbol"] for row in exported_functions()}
    if major < 5:
        wanted -= NEW_IN_XRE_5
    assert exported_symbols(built_runtimes[major] / "runtime/lib/libxpurt.so") == wanted


def test_the_older_header_has_not_the_newer_calls(tmp_path: Path):
    for name in NEW_IN_XRE_5:
        assert compiles(tmp_path, f"auto call = &{name};") == ""
        assert "not declared" in compiles(tmp_path, f"auto call = &{name};", major=4)


def test_headers_serve_c_and_cpp(tmp_path: Path):
    source = tmp_path / "check.c"
    source.write_text('#include "xpu/runtime_ex.h"\nint main(void) { return xpu_wait(NULL); }\n')
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    ended = subprocess.run(
        [*command, f"-I{NATIVE / 'include'}", source], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_a_status_has_a_text_whatever_its_sign(tmp_path: Path):
    source = tmp_path / "texts.cpp"
    source.write_text("""
#include <cstdio>
#include <cstdlib>
#include "xpu/defs.h"
int main(int, char** words) { std::puts(xpu_strerror(std::atoi(words[1]))); }
""")
    program = compile_native(tmp_path / "texts", [source])

    def text(code: int) -> str:
        return subprocess.run([program, str(code)], capture_output=True, text=True).stdout.strip()

    told = {
        row["declaration"]: text(int(row["declaration"]))
        for row in rows("enum")
        if row["name"].startswith("XPUERR")
    }
    assert {code for code, words in told.items() if words == "unknown error"} == {
        "703",
        "704",
        "815",
    }
    assert told["705"] == text(-705) == "out of device memory"
    assert (text(22), text(-22), text(0)) == (os.strerror(22), os.strerror(22), os.strerror(0))
    assert text(999) == "unknown error"


def test_an_environment_variable_of_the_table_is_read_by_the_runtime(p800: Tree):
    library = p800.library.read_bytes()
    for row in rows("variable"):
        assert row["name"].encode() + b"\0" in library
