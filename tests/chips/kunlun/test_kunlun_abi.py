"""What the compiled shim and the declared calls ask of the vendor's libraries stands in the tables
of the ABI, so that shim and simulator cannot agree on something that nobody wrote down."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from anychip.chips.kunlun.communicator import FUNCTIONS
from anychip.chips.kunlun.memory import KERNELS
from anychip.sdkbase.table import rows

EVIDENCE = {"header", "call site", "guess", "log"}
OURS = ("xpusim",)
"""Names of the simulator's own, which no shim may want."""


def table():
    return [row for file in sorted(KERNELS.glob("abi_*.tsv")) for row in rows(file)]


def symbols():
    """Linker's names of the tables, template instantiations included."""
    texts = (part for row in table() for part in row["symbol"].split(";"))
    return {text.rpartition(":")[2].strip() for text in texts if text.strip()}


def named(library, *flags):
    """Dynamic symbols of a library, without their versions."""
    out = subprocess.run(
        ["nm", "-D", "--format=posix", *flags, str(library)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[0].split("@")[0] for line in out.splitlines() if line}


def of_source_alone(symbol):
    """A member of a class that the tables give as source: its binary form is the simulator's."""
    told = subprocess.run(["c++filt", symbol], check=True, capture_output=True, text=True).stdout
    classes = [r["name"] for r in table() if "not the same binary" in r["source"]]
    return any(told.startswith(f"{name}::") for name in classes)


def vendor_libraries(sdk):
    return [f for folder in ("sdk", "runtime") for f in (sdk.root / folder / "lib").glob("*.so")]


def test_every_row_says_what_it_rests_on():
    for row in table():
        assert row["evidence"] in EVIDENCE, row["name"]
        assert row["symbol_evidence"] in EVIDENCE | {""}, row["name"]
        linked = row["kind"] == "function" and "inline" not in row["declaration"]
        assert bool(row["symbol"]) == linked, row["name"]
        assert row["seen_in"] and row["source"], row["name"]


def test_what_the_shim_wants_of_the_sdk_stands_in_the_tables(sdk, compiled):
    offered = set().union(*(named(file, "--defined-only") for file in vendor_libraries(sdk)))
    wanted = named(compiled, "--undefined-only") & offered
    assert len(wanted) > 50
    assert not {name for name in wanted if any(own in name for own in OURS)}
    beyond = {name for name in wanted - symbols() if not of_source_alone(name)}
    assert not beyond


def test_what_the_libraries_offer_beyond_the_tables_is_the_simulators_own(sdk):
    known = symbols()
    for file in vendor_libraries(sdk):
        beyond = named(file, "--defined-only") - known
        vendors = {n for n in beyond if re.match(r"xpu_|xpuml|bkcl_|_Z\d+bkcl_", n)}
        assert not vendors, f"{file.name}: {sorted(vendors)}"


LETTERS = {"int": "i", "size_t": "z", "BKCLDataType": "i", "BKCLOp": "i", "BKCLContext_t": "p"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_declared_collectives_are_those_of_the_table(name):
    row = next(r for r in rows(KERNELS / "abi_bkcl.tsv") if r["name"] == name)
    parameters = row["declaration"].split("(", 1)[1].rsplit(")", 1)[0].split(",")
    words = [p.split("=")[0].replace("const ", "").split() for p in parameters]
    pointers = ("*", "XPUStream")
    found = "".join(
        "p" if any(mark in "".join(word) for mark in pointers) else LETTERS[word[0]]
        for word in words
    )
    assert found == FUNCTIONS[name], row["declaration"]


def test_tables_lie_where_the_package_takes_them_along():
    folder = Path(KERNELS)
    assert {f.parent for f in folder.glob("*.tsv")} == {folder}
