"""`anychip bisect` as a user runs it: exit codes, what is printed where."""

from __future__ import annotations

import json

import pytest

import crooked_chip
from anychip.__main__ import main
from anychip.model.tiny import write_tiny

WRONG = (
    *("--backend-ref", "fake"),
    *("--chip-option", "wrong=silu_and_mul", "--chip-option", "factor=-3"),
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("cli_bisect")
    path = write_tiny(folder, layers=1)
    with crooked_chip.installed(folder):
        words = ["bisect", "--model-path", str(path), "--cache-dir", str(folder)]
        yield [*words, "--max-new-tokens", "4", "--backend", "crooked"]


def test_same_text_ends_with_0(asked, capsys) -> None:
    assert main([*asked, "--backend-ref", "fake"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "same text on crooked and fake: 15 tokens of prompt, 4 tokens compared\n"
    )
    assert "text of fake alone" in printed.err


def test_culprit_ends_with_1_and_each_trial_is_told(asked, capsys) -> None:
    assert main([*asked, *WRONG]) == 1
    printed = capsys.readouterr()
    first = printed.out.splitlines()[0]
    assert first == (
        "silu_and_mul (fake.silu_and_mul) changes the text: with it from fake the text is fake's"
    )
    assert "trial 2: " in printed.err


def test_json_has_culprits_and_evidence(asked, capsys) -> None:
    assert main([*asked, *WRONG, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["culprits"] == [{"op": "silu_and_mul", "implementations": ["fake.silu_and_mul"]}]
    assert found["evidence"]["verdict"] == "defect"


def test_no_reference_is_refused_with_the_flag_that_names_one(asked, capsys) -> None:
    assert main(asked) == 2
    assert "--backend-ref: name the chip to compare with" in capsys.readouterr().err


def test_chip_that_does_not_open_cannot_be_judged(asked, capsys) -> None:
    assert main([*asked, "--backend-ref", "granite"]) == 2
    error = capsys.readouterr().err
    assert "loading" not in error
    assert "cannot be judged: no chip 'granite' is installed" in error
