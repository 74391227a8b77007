"""What the benches refuse before they measure: counts below 1, packages and models not there."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import command_line
import pytest

import tiny_models

BENCH = Path(command_line.__file__).parent
NO_PROGRAMS = {"command_line.py", "whole_logits.py"}
PROGRAMS = sorted(path.stem for path in BENCH.glob("*.py") if path.name not in NO_PROGRAMS)

COUNTED = {
    "against_transformers": (["MODEL"], ["--repeats"]),
    "instruction_sets": (["MODEL"], ["--repeats"]),
    "peers": (["--out", "OUT"], ["--repeats", "--shrink", "--start-limit", "--batch-limit"]),
    "perplexity": (["--folder", "MODEL"], ["--windows", "--context"]),
    "startup": ([], ["--repeats"]),
    "step_costs": (["MODEL", "--out", "OUT"], ["--batches", "--steps"]),
}
"""Program -> the other words that it needs, and its flags that take a number above 0."""

NEEDED = {
    "against_transformers": (["MODEL"], ["torch", "transformers", "accelerate", "gguf"]),
    "bf16_folder": (["MODEL", "OUT"], ["torch", "transformers", "accelerate", "gguf"]),
    "gguf_widths": (["MODEL", "OUT"], ["gguf"]),
    "perplexity": (["--folder", "MODEL"], ["torch", "transformers"]),
}
"""Program -> the words that it needs, and the packages without which it stops."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_models.make_gguf(tmp_path_factory.mktemp("model"), "q4_1")


def refused(monkeypatch, program: str, words: list[str]) -> object:
    """What the program leaves with."""
    monkeypatch.setattr(sys, "argv", [f"{program}.py", *words])
    with pytest.raises(SystemExit) as left:
        importlib.import_module(program).main()
    return left.value.code


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_told(program) -> None:
    line = [sys.executable, str(BENCH / f"{program}.py"), "--help"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {program}.py")


FLAGS = [(program, flag) for program, (_, flags) in COUNTED.items() for flag in flags]


@pytest.mark.parametrize("wrong", ["0", "-2", "x"])
@pytest.mark.parametrize(("program", "flag"), FLAGS)
def test_bad_counts_are_refused_by_name(monkeypatch, capsys, program, flag, wrong) -> None:
    assert refused(monkeypatch, program, [*COUNTED[program][0], flag, wrong]) == 2
    told = capsys.readouterr().err
    assert f"argument {flag}: '{wrong}' is not a " in told and "above 0" in told


def test_a_window_of_one_token_scores_nothing(monkeypatch, capsys) -> None:
    assert refused(monkeypatch, "perplexity", ["--folder", "MODEL", "--context", "1"]) == 2
    assert "argument --context: 1: a window needs 2 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "soon"])
def test_a_time_is_a_number_above_0(text) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a number of seconds"):
        command_line.seconds(text)
    assert command_line.seconds("0.5") == 0.5


LACKING = [(program, package) for program, (_, all_of) in NEEDED.items() for package in all_of]


@pytest.mark.parametrize(("program", "package"), LACKING)
def test_a_package_that_is_lacking_is_named(monkeypatch, model, tmp_path, program, package) -> None:
    places = {"MODEL": str(model), "OUT": str(tmp_path / "out")}
    monkeypatch.setitem(sys.modules, package, None)
    words = [places.get(word, word) for word in NEEDED[program][0]]
    told = str(refused(monkeypatch, program, words))
    assert told.startswith(f"{program}.py needs {package}, not installed for {sys.executable}")
    assert "requirements/test.txt" in told and "\n" not in told
    assert not (tmp_path / "out").exists()


def test_several_are_named_and_what_can_be_done_without(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/there/x.py"])
    with pytest.raises(SystemExit) as left:
        command_line.need("no_one", "json", "no_two", "no_three", instead="do without")
    told = str(left.value)
    assert told.startswith("x.py needs no_one, no_two and no_three, not installed")
    assert told.endswith("; or do without")


@pytest.mark.parametrize("program", ["against_transformers", "decode_rate", "perplexity"])
def test_a_model_that_is_not_there_is_named(monkeypatch, program) -> None:
    first = {"decode_rate": ["fake"], "perplexity": ["--folder"]}.get(program, [])
    told = str(refused(monkeypatch, program, [*first, "/no/such/model"]))
    assert told.startswith("there is no model at /no/such/model")


def test_the_decode_rate_of_a_chip_is_told(monkeypatch, capsys, tmp_path) -> None:
    program = importlib.import_module("decode_rate")
    folder = str(tiny_models.make_hf_folder(tmp_path))
    monkeypatch.setattr(program, "CONTEXT", 128)
    monkeypatch.setattr(sys, "argv", ["decode_rate.py", "fake", folder, "float32", "bfloat16"])
    program.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["fake float32", "fake bfloat16"]
    told = str(refused(monkeypatch, "decode_rate", ["fake", folder, "float8"]))
    assert "--dtype: 'float8' is not one of" in told


def test_an_instruction_set_that_fails_is_named(model) -> None:
    sets = importlib.import_module("instruction_sets")
    with pytest.raises(SystemExit, match=r"--isa sse2: .*option isa=sse2: say one of"):
        sets.child(model, "sse2")


def test_a_child_that_takes_too_long_is_told(monkeypatch, model, tmp_path) -> None:
    transformers, perplexity = map(importlib.import_module, ("against_transformers", "perplexity"))
    for program in (transformers, perplexity):
        monkeypatch.setattr(program, "PATIENCE", 0.01)
    with pytest.raises(SystemExit, match=r"anychip bfloat16: no result within 0.01 s"):
        transformers.child("anychip bfloat16", model, 0)
    run = perplexity.Run("anychip", model, "bfloat16")
    with pytest.raises(SystemExit, match=f"{run.name}: no result within"):
        perplexity.child(run, tmp_path / "ids.json")
    monkeypatch.setattr(perplexity, "PATIENCE", 60)
    with pytest.raises(SystemExit, match=f"{run.name} failed; the lines above say why"):
        perplexity.child(run, tmp_path / "ids.json")  # there is no such file


def test_engines_without_the_peer_have_no_ratios() -> None:
    table = importlib.import_module("against_transformers").table
    ours, theirs = {"a": 3.0}, {"a": 2.0}
    assert table({"anychip bfloat16": [ours]}).splitlines()[-1] == "| a | 3 |"
    both = table({"transformers bf16": [theirs], "anychip bfloat16": [ours]})
    assert both.splitlines()[-1] == "| a | 2 | 3 (1.50 x) |"


def test_nothing_to_report_is_told(monkeypatch, tmp_path) -> None:
    told = refused(monkeypatch, "peers", ["--report", "--out", str(tmp_path)])
    assert told == f"--out {tmp_path}: it has no results.jsonl to report"
