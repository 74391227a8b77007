"""What Python costs in a step: that it is measured and counted, on a tiny model."""

from __future__ import annotations

import json
import sys

import pytest
import python_step
from costs.plots import INSTALL

import tiny_models

FEW = ["--batches", "1", "3", "--context", "24", "--turns", "3", "--evict-mib", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    return tiny_models.make_hf_folder(made / "tiny", dtype="float32")


def run(monkeypatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["python_step.py", *map(str, words)])
    return python_step.main()


def test_times_counts_and_profile(monkeypatch, folder, tmp_path) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, folder, "--out", out, "--backend", "fake", *FEW) == 0
    found = json.loads((out / python_step.FILE).read_text())
    assert [one["batch"] for one in found] == [1, 3]
    for one in found:
        for turn in (one["hot"], one["cold"]):
            assert all(seconds > 0 for seconds in turn.values())
        assert one["overlapped"] > 0
        names = {spent["name"] for spent in one["spent"]}
        assert {"run/runner.py _run_plain", "schedule/scheduler.py commit"} <= names
        assert not any(name.endswith(" timed") for name in names), "launches are not Python's"
    one, three = (each["counts"] for each in found)
    assert one["bytecodes"] < three["bytecodes"] and one["calls"] < three["calls"]
    assert one["native_calls"] > 0 and one["peak"] > 0
    assert one["bytecodes"] == pytest.approx(sum(one["by_code"].values()), rel=0.2)
    text = (out / "python_step.md").read_text()
    assert "| tiny  |     1 | cold, overlapped |" in text


def test_it_is_drawn_where_matplotlib_is_there(monkeypatch, folder, tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    words = [folder, "--backend", "fake", *FEW, "--batches", "1", "--turns", "1"]
    assert run(monkeypatch, *words, "--out", tmp_path / "a") == 0
    assert (tmp_path / "a" / "python_step.png").stat().st_size > 0
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(monkeypatch, *words, "--out", tmp_path / "b") == 0
    assert INSTALL in capsys.readouterr().err


def test_results_are_not_written_over(monkeypatch, folder, tmp_path) -> None:
    (tmp_path / python_step.FILE).write_text("[]")
    with pytest.raises(SystemExit, match="has results already"):
        run(monkeypatch, folder, "--out", tmp_path, *FEW)


def test_what_cannot_be_measured_is_refused(monkeypatch, folder, tmp_path) -> None:
    missing = tmp_path / "missing.gguf"
    for words in ([missing], [folder, "--backend", "no-such"], [folder, "--context", 600]):
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *words, "--out", tmp_path / "out")
        assert str(words[-1]) in str(ended.value)
