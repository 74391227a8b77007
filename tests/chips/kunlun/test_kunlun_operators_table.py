"""The operators' table against the shim's sources, and those against the tables of the ABI."""

from __future__ import annotations

import csv
import ctypes
import re
import shutil
import subprocess

import pytest

from anychip.chips.kunlun.operators import GUARDS, TABLE, Shim
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.errors import ChipError
from anychip.contract.operators import DtypeRow, Implementation, OperatorTable
from anychip.sdkbase.build import NATIVE
from anychip.sdkbase.calls import CallStruct
from anychip.sdkbase.table import rows

KERNELS = TABLE.parent
ROWS = rows(TABLE)
SPACES = {"api": "baidu::xpu::api", "xft": "baidu::xpu::xftblock", "xblas": "baidu::xpu::xblas"}
ORDER = ("header", "log", "call site", "guess")
TYPES = ("VectorParam", "Activation_t", "DataType", "DataTypeToEnum", "name")
"""Types without a row of their own, and the parameter of a macro."""
MACROS = "OPERATOR|UNARY|ACTIVATION|BINARY|NUMBERS|COMPARISON|REDUCTION|DISTRIBUTION"


def defined(file):
    """Operators that a source of the shim defines."""
    return set(re.findall(rf"^(?:{MACROS})\((\w+)", file.read_text(), re.M)) - {"name"}


def evidence():
    """Vendor name -> its evidence, the worst where it has several rows."""
    found = {}
    for file in KERNELS.glob("abi_*.tsv"):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
                known = found.get(row["name"], "header")
                found[row["name"]] = max(known, row["evidence"], key=ORDER.index)
    return found


def called(file):
    """Vendor names in a source."""
    names = re.findall(r"\b(api|xft|xblas|infer_ops)::([A-Za-z_]\w*)", file.read_text())
    return {f"{SPACES.get(s, s)}::{n}" for s, n in names if n not in TYPES}


def test_every_row_stands_in_its_source_and_every_operator_of_a_source_in_a_row():
    rows = {(row["source"], row["name"]) for row in ROWS}
    assert rows == {(f.name, n) for f in KERNELS.glob("*.cpp") for n in defined(f)}


@pytest.mark.parametrize("file", sorted(KERNELS.glob("*.cpp")), ids=lambda f: f.name)
def test_a_call_that_no_public_header_shows_has_a_file_of_its_own(file):
    known = evidence()
    worst = max((known[name] for name in called(file)), key=ORDER.index, default="header")
    assert file.name.startswith("guess_") == (worst != "header"), worst
    for row in ROWS:
        if row["source"] == file.name:
            assert row["evidence"] == worst, row["name"]


def test_headers_of_the_shim_call_nothing_that_no_public_header_shows():
    known = evidence()
    for file in KERNELS.glob("*.h"):
        assert all(known[name] == "header" for name in called(file) if name in known), file.name


def test_a_row_that_rests_on_less_than_a_header_says_what_is_assumed():
    assert all(row["assumed"] for row in ROWS if row["evidence"] != "header")


def test_words_of_the_rows_are_known():
    for row in ROWS:
        assert row["operator"] in CATALOGUE
        assert row["guard"] in GUARDS and row["compute"] == "float32"
        assert row["reads_host"] in ("", "yes")
        reads = "run.host(" in (KERNELS / row["source"]).read_text()
        reads |= "attention_of(run)" in (KERNELS / row["source"]).read_text()
        assert (row["reads_host"] == "yes") is reads, row["name"]
        text = "composed" in row["call"] or "::" in row["call"]
        assert text and row["library"], row["name"]


def test_a_row_of_the_wrong_dtype_variables_does_not_pass():
    """What `OperatorTable` checks of each row when the chip opens."""
    wrong = Implementation(
        op="add", id="x", prepare=lambda call: lambda: None, dtypes=(DtypeRow({"X": ("float32",)}),)
    )
    with pytest.raises(Exception, match=r"over \['X'\]"):
        OperatorTable((wrong,))


def test_a_shim_of_another_version_is_refused(tmp_path):
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    size = ctypes.sizeof(CallStruct) - 8
    source.write_text(
        f"long anychip_kunlun_struct_size(void) {{ return {size}; }}\n"
        "void* anychip_kunlun_open(void* stream) { return stream; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with pytest.raises(ChipError, match=f"has {size} bytes.*build it anew"):
        Shim(library, lambda tensor: 0)


def with_older_functions(headers, place):
    """Headers that also declare, as the vendor's do, each function over 64-bit shapes with 32-bit
    ones."""
    shutil.copytree(headers, place)
    added = 0
    for name in ("math.h", "nn_activation.h", "nn.h", "fusion.h"):
        file = place / "xpu" / "refactor" / name
        text = file.read_text()
        older = []
        for declared in re.findall(r"template <[^;{]*?;", text, re.S):
            head, arguments = declared.split("(", 1)
            if "std::vector<int64_t>" in arguments:
                plain = re.sub(r"\s*=\s*(\{\}|[^,()]+)(?=[,)])", "", arguments)
                older.append(f"{head}({plain.replace('int64_t', 'int')}")
        end = text.rindex("}  // namespace api")
        file.write_text(text[:end] + "\n".join(older) + "\n" + text[end:])
        added += len(older)
    return added


def test_sources_compile_beside_older_functions_of_the_same_names(sdk, tmp_path):
    headers = tmp_path / "include"
    assert with_older_functions(sdk.root / "sdk" / "include", headers) > 20
    places = [NATIVE, headers, *(headers / part for part in ("xhpc", "xhpc/xblas", "xft"))]
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    for file in sorted(KERNELS.glob("*.cpp")):
        command = ["g++", *flags, *(f"-I{place}" for place in places), str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
