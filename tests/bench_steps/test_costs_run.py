"""The whole bench on tiny models, and what it refuses."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import step_costs
from costs.limits import Rates, read_size
from costs.plots import INSTALL

import tiny_models

SMALL = ["--batches", "1", "3", "--contexts", "16", "40", "--prefills", "24", "--steps", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    return tiny_models.make_hf_folder(made / "tiny", dtype="bfloat16")


@pytest.fixture
def quick_rates(monkeypatch) -> None:
    """In place of seconds of measuring."""

    def rates(steps, known=None) -> Rates:
        facts = dict.fromkeys(("processor", "cores", "memory_gib", "system", "python"), "some")
        reads = {str(read_size(step.bytes)): 10.0 for step in steps}
        facts |= {"load_before": 0.0, "read_gb_s": reads, "product_gflops": {"float32": 10.0}}
        return Rates(facts)

    monkeypatch.setattr(step_costs, "measured", rates)


def run(monkeypatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["step_costs.py", *map(str, words)])
    return step_costs.main()


def steps_of(out) -> list[dict]:
    return json.loads((out / "steps.json").read_text())["models"][0]["steps"]


def test_a_chip_with_memory_of_its_own_has_no_limits(monkeypatch, folder, tmp_path) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, folder, "--out", out, "--backend", "fake", *SMALL) == 0
    found = steps_of(out)
    sizes = [(step["kind"], step["batch"], step["context"]) for step in found]
    assert sizes[:4] == [("decode", b, c) for c in (16, 40) for b in (3, 1)]
    assert sizes[4:] == [("prefill", 1, 24)]
    for step in found:
        assert step["batch"] * step["context"] <= step["positions"]
        assert 0 < step["native"] < step["step"] and step["python"] > 0
        assert step["operators"] and "limit" not in step
    assert (out / "steps.md").read_text().startswith("# What a step costs")


def test_limits_and_plots_of_two_models(monkeypatch, quick_rates, folder, tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    out, other = tmp_path / "out", tiny_models.make_gguf(tmp_path, "q8_0")
    assert run(monkeypatch, folder, other, "--out", out, *SMALL) == 0
    assert all(step["reached"] > 0 for step in steps_of(out))
    plots = {path.name for path in out.glob("*.png")}
    assert plots == {"decode_batch.png", "decode_context.png", "models.png"}
    assert "side by side" in capsys.readouterr().out


def test_without_matplotlib_it_says_so(monkeypatch, folder, tmp_path, capsys) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    few = ["--batches", "1", "--contexts", "16", "--prefills", "8", "--steps", "1"]
    assert run(monkeypatch, folder, "--out", tmp_path, "--backend", "fake", *few) == 0
    assert INSTALL in capsys.readouterr().err


def test_sizes_have_to_be_positive(monkeypatch, folder, tmp_path, capsys) -> None:
    for flag in ("--batches", "--contexts", "--prefills", "--steps"):
        for wrong in ("0", "-3", "x", "1.5"):
            with pytest.raises(SystemExit):
                run(monkeypatch, folder, "--out", tmp_path, f"{flag}={wrong}")
            assert f"'{wrong}' is not a whole number above 0" in capsys.readouterr().err


def refused(monkeypatch, *words: object) -> str:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *words)
    return str(ended.value)


def test_what_cannot_be_measured_is_refused(monkeypatch, folder, tmp_path) -> None:
    out = ["--out", tmp_path / "out"]
    missing = tmp_path / "missing.gguf"
    assert str(missing) in refused(monkeypatch, missing, *out)
    text = refused(monkeypatch, folder, *out, *SMALL, "--contexts", "510")
    assert "--contexts 510" in text and f"is {tiny_models.CONTEXT}" in text
    text = refused(monkeypatch, folder, *out, *SMALL, "--prefills", "512")
    assert "--prefills 512" in text
    assert "named twice" in refused(monkeypatch, folder, folder, *out, *SMALL)
    assert "no-such" in refused(monkeypatch, folder, *out, *SMALL, "--backend", "no-such")
    assert not list((tmp_path / "out").glob("*.json"))


def test_results_are_not_written_over(monkeypatch, folder, tmp_path) -> None:
    (tmp_path / "steps.json").write_text("{}")
    text = refused(monkeypatch, folder, "--out", tmp_path, *SMALL)
    assert "has results already" in text
    file = tmp_path / "steps.json"
    assert "--out" in refused(monkeypatch, folder, "--out", file, *SMALL)


def test_sizes_that_do_not_fit_are_told(monkeypatch, folder, tmp_path) -> None:
    """A cache that is smaller than was asked for."""
    found = SimpleNamespace(skipped=[], points=[])
    asked = SimpleNamespace(batches=[1, 4], contexts=[64], prefills=[32, 256], steps=2)
    steps = SimpleNamespace(cache_tokens=200, decodes=lambda *a: [], prefill=lambda n: None)
    bench = step_costs.Bench(asked, "tiny", folder, None)
    monkeypatch.setattr(bench, "_keep", lambda found, cost: None)
    bench._decodes(steps, found), bench._prefills(steps, found, 128)
    assert [why.split(":")[0] for why in found.skipped] == [
        "decode of batch 4, context 64",
        "prefill of 256 tokens",
    ]
