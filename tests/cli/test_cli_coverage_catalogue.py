"""`anychip coverage --catalogue`: what a chip brings, operator by operator, without a model."""

from __future__ import annotations

import json

import pytest

from anychip.__main__ import main
from anychip.contract.catalogue import CATALOGUE

LEAN = ("--backend", "fake", "--chip-option", "primitives_only=true")


def told(capsys, *words: str) -> tuple[int, str]:
    code = main(["coverage", "--catalogue", *words])
    return code, capsys.readouterr().out


def test_every_operator_has_a_line_and_what_is_not_brought_is_composed(capsys) -> None:
    code, out = told(capsys, *LEAN, "--json")
    lines = json.loads(out)
    assert code == 0
    assert [line["op"] for line in lines] == list(CATALOGUE)
    kinds = {line["op"]: line["kind"] for line in lines}
    assert (kinds["exp"], kinds["rms_norm"]) == ("native", "composed")
    assert "computed in float32" in next(line["dtypes"] for line in lines if line["op"] == "exp")


def test_missing_primitive_fails(capsys) -> None:
    code, out = told(capsys, *LEAN, "--chip-option", "without=exp", "--markdown")
    assert code == 1
    assert "| exp | primitive | missing |" in out


def test_markdown_has_a_heading_and_a_row_an_operator(capsys) -> None:
    _, out = told(capsys, *LEAN, "--markdown")
    lines = out.splitlines()
    assert lines[0].startswith("| operator | tier |")
    assert set(lines[1]) <= set("| -")
    assert len(lines) == 2 + len(CATALOGUE)


def test_table_is_drawn(capsys) -> None:
    _, out = told(capsys, "--backend", "fake")
    assert "the catalogue on fake" in out
    assert "fake.rms_norm" in out


def test_markdown_without_catalogue_is_refused(capsys) -> None:
    assert main(["coverage", "--backend", "fake", "--markdown"]) == 2
    assert "--catalogue" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_no_operator_of_ours_is_missing(capsys, backend) -> None:
    assert told(capsys, "--backend", backend)[0] == 0
