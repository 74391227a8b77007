"""`anychip tune` as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import dawdling_chip
import pytest
from test_tune_run import Scripted, prepared
from tune_cases import CHUNK, RUNNING

from anychip.__main__ import main
from anychip.model.tiny import write_tiny

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:17:03.5,12,4\n" * 8


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path


def asked(folder: Path, *more: str) -> list[str]:
    out = ["--output", str(folder / "out")]
    return ["tune", "--model-path", "M", "--trace", str(folder / "t.csv"), *out, *more]


@pytest.fixture
def scripted(folder, monkeypatch):
    """Runs that take no time, with figures that are made up."""
    script = Scripted(both=15.0)

    def ready(question, says):
        says("doctor: nothing is red")
        found = prepared(folder)
        return type(found)(**{**vars(found), "asked": question})

    monkeypatch.setattr("anychip.bench.tune.prepare.prepare", ready)
    monkeypatch.setattr(
        "anychip.bench.tune.tune.measure", lambda load, words, log: script(words, log)
    )
    monkeypatch.setattr("anychip.cli.tune.with_model", lambda config: config)
    return script


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--vary", "tp-size=2"], "tensor parallelism is not there yet"),
        (["--vary", "page-size"], "'page-size' is not NAME=VALUE"),
        (["--objective", "goodput"], "add --slo-ttft or --slo-tpot"),
        (["--objective", "speed"], "is not one of throughput, ttft, tpot, goodput"),
        (["--repeats", "1"], "under the least value 2"),
        (["--speed", "0"], "--speed: 0.0 is under the least value"),
        (["--compare", "nowhere"], "nowhere cannot be read"),
        (["--port", "1"], "--port is a flag of `anychip serve`"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_before_anything_runs(folder, capsys, words, said) -> None:
    assert main(asked(folder, *words)) in (1, 2)
    assert said in capsys.readouterr().err


def test_no_trace_and_no_table_is_refused(capsys) -> None:
    assert main(["tune"]) == 2
    assert "name the requests to serve" in capsys.readouterr().err


def test_what_is_no_trace_is_refused(folder, capsys) -> None:
    (folder / "t.csv").write_text("a,b\n")
    assert main(asked(folder)) == 2
    assert "not a trace that is known" in capsys.readouterr().err


def test_tables_the_line_and_the_files(folder, capsys, scripted) -> None:
    assert main(asked(folder)) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"anychip serve --backend fake {RUNNING} 8 {CHUNK} 512"
    assert "one variable at a time" in out
    assert "coupling: they help each other" in out
    assert "--tp-size: not varied: tensor parallelism is not there yet" in err
    assert "run 1 of 12 at least: base" in err
    assert "run 24 of 24, about 0 s left" in err or "run 24 of 24, about 1 s left" in err
    assert {p.name for p in (folder / "out").iterdir()} == {
        "runs.jsonl", "tune.json", "tune.md", "tune.png", "servers",
    }  # fmt: skip
    assert main(asked(folder)) == 1
    assert "has runs already; go on with --resume" in capsys.readouterr().err
    main(["tune", "--output", str(folder / "out"), "--compare", str(folder / "out"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {change["verdict"] for change in found["compared"]["changes"]} == {"noise"}
    assert found["table"]["format"] == "anychip-tune"


def test_ctrl_c_keeps_the_runs_and_resume_goes_on(folder, capsys, scripted) -> None:
    scripted.stop_at = 6
    assert main(asked(folder)) == 130
    printed = capsys.readouterr()
    assert "add --resume to go on" in printed.err
    assert printed.out.endswith("nothing is recommended yet: go on with --resume\n")
    scripted.stop_at = None
    assert main(asked(folder, "--resume")) == 0
    assert len(scripted.words) == 24


@pytest.mark.slow
def test_on_servers_of_a_chip_that_needs_many_at_once(folder, capsys) -> None:
    write_tiny(folder, context=512).rename(folder / "model.gguf")
    words = ["--model-path", str(folder / "model.gguf"), "--backend", "dawdling"]
    base = ["--chip-option", "seconds=0.05", "--max-running-requests", "1"]
    with dawdling_chip.installed(folder):
        assert main(asked(folder, *words, *base, "--vary", "max-running-requests=8")) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("anychip serve --model-path")
    assert "--max-running-requests 8" in line
