"""Every code of the vendor's libraries has a kind; none is lost."""

import errno
import os
import re
from pathlib import Path

import pytest

from anychip.chips.kunlun import memory
from anychip.chips.kunlun.memory import ERRORS
from anychip.contract.errors import ChipLayer, ErrorKind

KERNELS = Path(memory.__file__).parent / "kernels"
ROWS = [line.split("\t") for line in (KERNELS / "errors.tsv").read_text().splitlines()[1:]]
FATAL = (ErrorKind.KERNEL, ErrorKind.LOST, ErrorKind.VERSION)
"""After an error of these kinds by XRE no call of this process can be trusted."""


def code_of(space: str, number: int) -> int:
    return ERRORS.code(space, number)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_each_code_says_its_layer_kind_number_and_name(row):
    space, number, name, layer, kind, fatal, text = row
    for sign in (1, -1):
        fact = ERRORS.fact(sign * code_of(space, int(number)))
        assert (fact.layer, fact.kind) == (ChipLayer(layer), ErrorKind(kind))
        assert fact.fatal is (fatal == "yes")
        assert fact.text == f"{space} {number} ({name}): {text}"


def test_the_numbers_are_those_of_the_tables_of_the_abi():
    """Enumerators of the vendor's headers, with the prefix that each library has."""
    prefixes = {
        ("abi_runtime.tsv", "XRE"): r"XPU(?:ERR_|_)(\w+)",
        ("abi_telemetry.tsv", "XPUML"): r"XPUML_(?:ERROR_)?(\w+)",
        ("abi_bkcl.tsv", "BKCL"): r"BKCL_(\w+)",
        ("abi_xdnn.tsv", "XDNN"): r"(?:.*::)?(\w+)",
    }
    for (table, space), pattern in prefixes.items():
        lines = [line.split("\t") for line in (KERNELS / table).read_text().splitlines()]
        enums = {line[1]: line[3] for line in lines if line[0] == "enum"}
        named = {m[1]: int(v) for n, v in enums.items() if (m := re.fullmatch(pattern, n))}
        for _, number, name, *_ in (row for row in ROWS if row[0] == space and row[2] != "BASE"):
            assert named[name] == int(number), f"{table}: {name}"


def test_no_code_of_the_runtime_is_left_out():
    numbers = {int(row[1]) for row in ROWS if row[0] == "XRE"}
    assert numbers == {0, *range(700, 721), *range(800, 818)}


def test_what_taints_the_process_ends_it():
    for code, fact in ERRORS.facts.items():
        if code % 10_000 == 0:
            assert not fact.fatal
        elif code < 10_000 and fact.kind in FATAL:
            assert fact.fatal, fact
        if fact.kind is ErrorKind.OUT_OF_MEMORY:
            assert not fact.fatal, fact
        if fact.kind is ErrorKind.LOST:
            assert fact.fatal, fact
    assert all(ERRORS.fact(code).fatal for code in (700, 714, 719, 720))


@pytest.mark.parametrize("code", [1, errno.EINVAL, errno.ENOENT, 133, 699])
def test_below_700_it_is_an_errno(code):
    for sign in (1, -1):
        fact = ERRORS.fact(sign * code)
        assert os.strerror(code) in fact.text and f"XRE {sign * code}" in fact.text
        assert fact.fatal
    assert not ERRORS.fact(errno.ENOMEM).fatal
    assert ERRORS.fact(-errno.ENOMEM).kind is ErrorKind.OUT_OF_MEMORY


@pytest.mark.parametrize("code", [721, 799, 818, 9999, 10_077, 30_998, 65_535, 987_654])
def test_unknown_codes_keep_their_number_and_are_fatal(code):
    for sign in (1, -1):
        fact = ERRORS.fact(sign * code)
        assert f"unknown code {sign * code}" in fact.text
        assert fact.fatal


def test_an_error_says_which_library_and_which_call():
    error = ERRORS.error("XDNN", -1, "add", ("mul", "add"))
    assert error.code == 10_001
    assert "operators: invalid argument: add: XDNN 1 (INVALID_PARAM)" in str(error)
    assert str(error).endswith("queued since the last wait: mul, add")
    assert "BKCL 77: unknown code 20077" in str(ERRORS.error("BKCL", 77, "bkcl_all_reduce"))
