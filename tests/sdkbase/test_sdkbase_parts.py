"""Parts of a vendor's SDK: folders, headers, version files and calls, tables."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from anychip.contract.build import Verdict
from anychip.sdkbase import headers
from anychip.sdkbase.places import folders_below, libraries_in, paths_of
from anychip.sdkbase.table import matrix, rows
from anychip.sdkbase.versions import told_by_calls, told_by_file, told_by_tool

GXX = shutil.which("g++")
needs_compiler = pytest.mark.skipif(GXX is None, reason="needs a compiler")


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_folders_are_those_below_a_root_its_parts_and_the_parts_beside_it(tmp_path):
    for name in ("root/lib", "root/xhpc/lib", "xccl/lib", "other/lib"):
        (tmp_path / name).mkdir(parents=True)
    found = folders_below(tmp_path / "root", ["xhpc", "xccl"], ["lib", "so"])
    assert found == tuple(tmp_path / n for n in ("root/lib", "root/xhpc/lib", "xccl/lib"))
    assert folders_below(None, ["xhpc"], ["lib"]) == ()
    assert folders_below(tmp_path / "gone", ["xhpc"], ["lib"]) == ()


def test_the_first_file_of_a_library_is_found(tmp_path):
    first = written(tmp_path / "a/libone.so.2", "")
    written(tmp_path / "b/libone.so", "")
    second = written(tmp_path / "b/libtwo.so", "")
    written(tmp_path / "b/libtwo.so.1", "")
    (tmp_path / "a/libtwo.so").symlink_to("libtwo.so.1")  # which is not there
    found = libraries_in(["one", "two", "three"], [tmp_path / "a", tmp_path / "b"])
    assert found == {"one": first, "two": second}


def test_paths_are_separated_by_commas(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert paths_of("~/a,/b c") == (Path("/home/me/a"), Path("/b c"))
    assert paths_of("") == ()


def test_headers_outside_are_found_with_who_includes_them(tmp_path):
    source = written(
        tmp_path / "s/a.cpp", '#include "near.h"\n#include <vector>\n#include <v/x.h>\n'
    )
    near = written(
        tmp_path / "s/near.h", '  #  include "v/y.h"\n#include "near.h"\n#include <sys/mman.h>'
    )
    assert headers.wanted([source]) == {"v/x.h": (source,), "v/y.h": (near,)}


def test_headers_without_a_folder_are_wanted_where_they_are_in_quotes(tmp_path):
    source = written(
        tmp_path / "s/a.cpp", '#include "ops.h"\n#include <math.h>\n#include "own.h"\n'
    )
    written(tmp_path / "own/own.h", "")
    assert headers.wanted([source], [tmp_path / "own"]) == {"ops.h": (source,)}
    assert headers.outside([source]) == {"ops.h", "math.h", "own.h"}


def test_the_digest_follows_what_headers_include(tmp_path):
    folder = tmp_path / "include"
    written(folder / "v/x.h", '#include "v/deep.h"\n#include "beside.h"\n')
    deep, beside = (
        written(folder / "v/deep.h", "int deep;"),
        written(folder / "v/beside.h", "int b;"),
    )
    seen = [headers.digest(["v/x.h"], [folder])]
    assert headers.digest(["v/x.h", "v/gone.h"], [folder]) == seen[0]
    for file in (deep, beside):
        file.write_text("int other;")
        seen.append(headers.digest(["v/x.h"], [folder]))
    assert len(set(seen)) == 3


def test_a_version_file_is_read_or_told_to_be_absent(tmp_path):
    file = written(tmp_path / "b/version.txt", "Name: some\nVersion: 1.2.3\nDate: 20250417\n")
    assert told_by_file([tmp_path / "a", tmp_path / "b"]) == ("1.2.3", str(file))
    assert told_by_file([tmp_path / "b"], r"(?m)^Date:\s*(\S+)").version == "20250417"
    told = told_by_file([tmp_path / "a"])
    assert told.version == "" and str(tmp_path / "a") in told.whence


def test_a_tool_is_asked_and_its_silence_is_told(tmp_path):
    assert told_by_tool(["echo", "X Version : 5.2"], r"X Version\s*:\s*(\S+)").version == "5.2"
    assert told_by_tool(["true"], "x").whence == "true printed none"
    assert "No such file" in told_by_tool([str(tmp_path / "gone")], "x").whence


VERSIONED = """
extern "C" int numbers(unsigned* a, unsigned* b) { *a = 5; *b = 2; return 0; }
extern "C" int text(char* t, unsigned n) { if (n < 4) return 7; t[0] = '9'; t[1] = 0; return 0; }
static bool ready = false;
extern "C" int init() { ready = true; return 0; }
extern "C" int late(char* t, unsigned) { t[0] = '3'; t[1] = 0; return ready ? 0 : 1; }
extern "C" int refuses(unsigned*, unsigned*) { return 704; }
"""


@needs_compiler
def test_versions_are_asked_of_a_library_in_a_child(tmp_path):
    source, library = written(tmp_path / "v.cpp", VERSIONED), tmp_path / "libv.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    calls = {"n": "numbers:numbers", "t": "text:text", "l": "late:text after init"}
    calls |= {"r": "refuses:numbers", "u": "late:text", "g": "gone:text", "i": "text:text after no"}
    told = told_by_calls([library], calls)
    assert told["n"] == ("5.2", "numbers") and told["t"] == ("9", "text")
    assert told["l"] == ("3", "late")
    assert told["r"] == ("", "refuses returned 704")
    assert told["g"] == ("", "gone is in no library") and told["i"] == ("", "no is in no library")
    gone = told_by_calls([tmp_path / "gone.so"], {"n": "numbers:numbers"})["n"]
    assert gone.version == "" and "gone.so" in gone.whence


def test_rows_that_fit_are_about_what_is_here(tmp_path):
    table = written(
        tmp_path / "v.tsv",
        'versions\tverdict\tsource\nA=1.*; B=2\tbad\tone "quoted"\nA=1.1\tgood\ttwo\nC=3\tgood\t\n',
    )
    assert rows(table)[0]["source"] == 'one "quoted"'
    found = matrix(table, {"A": "1.1", "B": "2"})
    assert [dict(row.versions) for row in found] == [
        {"A": "1.1", "B": "2"},
        {"A": "1.1"},
        {"C": "3"},
    ]
    assert [row.verdict for row in found] == [Verdict.BAD, Verdict.GOOD, Verdict.GOOD]
    assert dict(matrix(table, {"A": "1.1"})[0].versions) == {"A": "1.*", "B": "2"}
