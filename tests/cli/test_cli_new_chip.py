"""`anychip new-chip`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import os

import pytest

from anychip.__main__ import main
from anychip.cli.new_chip import LONGEST_NAME, TEMPLATE, written_files
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.discovery import chip_names
from anychip.contract.signature import Tier
from anychip.contract.version import CONTRACT


def files_in(folder) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}


def test_package_is_written_and_told(tmp_path, capsys):
    assert main(["new-chip", "granite_2", "--into", str(tmp_path), "--vendor", "Rocks & Co."]) == 0
    told = capsys.readouterr().out
    written = files_in(tmp_path / "granite_2")
    four = {"registration.py", "operators.py", "memory.py", "build.py"}
    assert {f"anychip_granite_2/{name}" for name in four} <= written
    assert {"anychip_granite_2/kernels/granite_2.c", "tests/test_conformance.py"} <= written
    for path in written:
        assert f"  {path}\n" in told
    assert f"pip install -e {tmp_path / 'granite_2'}\n" in told
    text = (tmp_path / "granite_2/anychip_granite_2/registration.py").read_text()
    assert 'vendor = "Rocks & Co."' in text and "class Granite2Chip(Chip)" in text


def test_what_the_contract_says_is_taken_from_it():
    files = written_files("granite", "someone")
    version = f"contract=({CONTRACT[0]}, {CONTRACT[1]})"
    assert version in files["anychip_granite/registration.py"]
    required = [op for op, s in CATALOGUE.items() if s.tier is Tier.REQUIRED]
    assert len(required) == 8
    assert ", ".join(f"`{op}`" for op in required) in files["README.md"]


def test_template_is_in_the_wheel_whole():
    pyproject = (TEMPLATE.parents[3] / "pyproject.toml").read_text()
    assert '"templates/**/*.in"' in pyproject
    files = [file for file in TEMPLATE.rglob("*") if file.is_file()]
    assert len(files) == len(written_files("granite", "someone")) == 10
    assert {file.suffix for file in files} == {".in"}


def test_nothing_of_the_template_is_left_in_a_file():
    for path, text in written_files("granite", "someone").items():
        assert "$" not in path + text and "NAME" not in path, path
        assert "pebble" not in text.lower(), path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my-npu", "'my-npu' cannot name a package: begin with a small letter"),
        ("2fast", "cannot name a package"),
        ("Granite", "cannot name a package"),
        ("granite_", "cannot name a package"),
        ("../granite", "cannot name a package"),
        ("grün", "cannot name a package"),
        ("", "cannot name a package"),
        ("lambda", "is a word of Python; add one, as in lambda_chip"),
        ("g" * (LONGEST_NAME + 1), f"has {LONGEST_NAME + 1} letters, {LONGEST_NAME} at most"),
        (chip_names()[0], "is installed already (see `anychip chips`): take another name"),
    ],
)
def test_name_that_cannot_be_is_refused_with_the_way_out(tmp_path, capsys, name, says):
    assert main(["new-chip", name, "--into", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("vendor", ["", 'a "b"', "a\\b", "a\nb", "v" * 41])
def test_vendor_that_would_break_the_source_is_refused(tmp_path, capsys, vendor):
    assert main(["new-chip", "granite", "--into", str(tmp_path), "--vendor", vendor]) == 2
    assert "--vendor: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_folder_with_something_in_it_is_left_alone_and_an_empty_one_is_taken(tmp_path, capsys):
    folder = tmp_path / "granite"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert main(["new-chip", "granite", "--into", str(tmp_path)]) == 2
    assert f"{folder} is there and not empty; nothing was written" in capsys.readouterr().err
    assert files_in(folder) == {"mine.txt"}
    (folder / "mine.txt").unlink()
    assert main(["new-chip", "granite", "--into", str(tmp_path)]) == 0
    assert "pyproject.toml" in files_in(folder)


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="needs a folder that nobody may write")
def test_folder_that_cannot_be_written_is_told(capsys):
    assert main(["new-chip", "granite", "--into", "/proc/self"]) == 2
    told = capsys.readouterr().err
    assert "--into: /proc/self/granite cannot be written: " in told


def test_no_name_is_an_error_that_shows_the_way(capsys):
    assert main(["new-chip"]) == 2
    assert "NAME (see anychip new-chip --help)" in capsys.readouterr().err
