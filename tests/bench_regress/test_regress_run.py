"""`anychip regress`: what got worse is found, named and told; what did not is not."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import crooked_chip
from anychip.__main__ import main
from anychip.bench.regress_baseline import Baseline, BaselineError, Known, load, save
from anychip.bench.regress_case_files import package_cases
from served import ENVIRONMENT

ONLY = "llama-float32/17/[ch]*"
WAYS = ("cold", "hit", "chunked")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("regressed")
    with crooked_chip.installed(folder):
        yield folder


@pytest.fixture
def asked(site: Path, tmp_path: Path) -> list[str]:
    """Speeds are not judged: a test's machine has other work."""
    words = ["regress", "--cache-dir", str(site / "cache"), "--baseline", str(tmp_path / "base")]
    return [*words, "--only", ONLY, "--repeats", "0", "--speed-limit", "0"]


def accepted(asked: list[str], backend: str, reason: str = "the first") -> Path:
    """Make a baseline; its file."""
    folder = Path(asked[asked.index("--baseline") + 1])
    assert main([*asked, "--backend", backend, "--update", "--reason", reason]) == 0
    (path,) = (folder / backend).glob("*.json")
    return path


def test_sound_chip_passes_without_a_baseline_and_is_told_so(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake"]) == 0
    printed = capsys.readouterr()
    assert "3 cases on fake: none is worse" in printed.out
    assert "There is no baseline in" in printed.err
    assert "name the folder with --baseline" in printed.err.lower()
    assert "--update --reason" in printed.err
    assert printed.err.count("\n") == 1  # cases that are sound have no line of their own
    assert "llama-float32/17/cold" not in printed.out


def test_verbose_prints_the_figures_of_every_case(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake", "--verbose"]) == 0
    printed = capsys.readouterr().out
    for path in WAYS:
        assert f"llama-float32/17/{path} " in printed
    assert main([*asked, "--backend", "fake", "--verbose", "--json"]) == 2
    assert "--verbose: --json prints every case already" in capsys.readouterr().err


def test_default_baseline_is_told_to_depend_on_the_working_directory(
    asked, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = asked.index("--baseline")
    words = [*asked[:at], *asked[at + 2 :], "--backend", "fake"]
    assert main(words) == 0
    printed = capsys.readouterr().err
    assert f"bench/baselines/fake (relative to the working directory {tmp_path})" in printed


def test_case_that_is_worse_is_told_once_a_stream_with_its_file(asked, capsys) -> None:
    wrong = ["--backend", "crooked", "--chip-option", "wrong=rms_norm"]
    assert main([*asked, *wrong]) == 1
    printed = capsys.readouterr()
    for path in WAYS:
        key = f"llama-float32/17/{path}"
        assert (printed.out.count(key), printed.err.count(key)) == (1, 1)
    assert "WARNING" not in printed.err
    (command, *_) = [line for line in printed.out.splitlines() if "next: " in line]
    words = shlex.split(command.partition("next: anychip ")[2])
    assert words[0] == "replay-op"
    assert main(words) == 1
    assert "fake.rms_norm diverges" in capsys.readouterr().err


def test_sound_chip_passes_against_its_own_baseline(asked, capsys) -> None:
    path = accepted(asked, "fake")
    assert main([*asked, "--backend", "fake"]) == 0
    assert "(the first), of this fingerprint" in capsys.readouterr().err
    known = load(path)
    assert set(known.cases) == {case.key for case in package_cases().chosen("small", ONLY)}
    assert known.history[0]["reason"] == "the first"


@pytest.mark.parametrize("op", ["rms_norm", "rotary_embedding"])
def test_broken_operator_is_found_and_named(asked, capsys, tmp_path: Path, op: str) -> None:
    accepted(asked, "crooked")
    output = tmp_path / "report"
    wrong = [
        *asked,
        "--backend",
        "crooked",
        "--chip-option",
        f"wrong={op}",
        "--output",
        str(output),
    ]
    assert main(wrong) == 1
    assert "3 cases on crooked: 3 worse" in capsys.readouterr().out
    text = (output / "regress.md").read_text()
    assert f"fake.{op}: {op} diverges from the oracle" in text
    found = json.loads((output / "regress.json").read_text())
    assert found["worse"] == 3
    assert all(f"fake.{op}" in named["what"] for named in found["named"].values())
    assert text.count("next: anychip replay-op ") == 3


def test_broken_operator_is_found_without_a_baseline(asked, capsys) -> None:
    assert main([*asked, "--backend", "crooked", "--chip-option", "wrong=paged_attention"]) == 1
    assert "fake.paged_attention: paged_attention diverges" in capsys.readouterr().out


def test_wrong_token_is_found_though_its_logits_are_right(asked, capsys) -> None:
    only = ["--only", "llama-float32/17/cold"]
    assert main([*asked, *only, "--backend", "crooked", "--chip-option", "wrong=greedy"]) == 1
    printed = capsys.readouterr()
    assert "token 0 is" in printed.out
    assert "fake.greedy: greedy diverges from the oracle" in printed.out


def test_other_fingerprint_is_compared_by_deviation_alone(asked, capsys) -> None:
    accepted(asked, "fake")
    capsys.readouterr()
    other = [*asked, "--backend", "fake", "--chip-option", "memory=1G", "--json"]
    assert main([*other, "--speed-limit", "1"]) == 0
    printed = capsys.readouterr()
    assert "speeds are not judged" in printed.err
    found = json.loads(printed.out)
    assert found["outcomes"][0]["before"]["deviation"] > 0
    assert found["outcomes"][0]["ok"]


def test_baseline_in_another_dtype_is_not_compared(asked, capsys) -> None:
    accepted(asked, "fake")
    assert main([*asked, "--backend", "fake", "--dtype", "bfloat16"]) == 0
    assert "ok (the baseline is in float32)" in " ".join(capsys.readouterr().out.split())


def test_update_keeps_what_it_replaces_and_cases_that_were_not_run(asked) -> None:
    path = accepted(asked, "fake")
    raw = json.loads(path.read_text())
    raw["cases"]["llama-float32/17/cold"]["deviation"] = 0.25
    raw["cases"]["gone/1/cold"] = {"dtype": "float32", "deviation": 0.5}
    path.write_text(json.dumps(raw))
    known = load(accepted(asked, "fake", "kernels sum in another order"))
    assert known.reason == "kernels sum in another order"
    assert [entry["reason"] for entry in known.history] == ["the first", known.reason]
    assert known.history[0]["added"] == len(WAYS)
    assert known.history[-1]["added"] == 0
    assert known.history[-1]["replaced"]["llama-float32/17/cold"]["deviation"] == 0.25
    assert known.cases["llama-float32/17/cold"].deviation < 1e-5
    assert known.cases["gone/1/cold"].deviation == 0.5


def test_update_without_a_reason_is_refused(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake", "--update"]) == 2
    assert "--update: say why the figures changed with --reason" in capsys.readouterr().err
    assert main([*asked, "--backend", "fake", "--reason", "because"]) == 2


def test_chip_without_figures_cannot_become_a_baseline(asked, capsys) -> None:
    failing = ["--backend", "fake", "--chip-option", "fail_allocation=25"]
    assert main([*asked, *failing, "--update", "--reason", "none"]) == 1
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": 99}, "has schema 99, this version reads 2"),
        ({"cases": {"a": {"speed": 1}}}, "lacks something or has too much"),
        ({"more": 1}, "lacks something or has too much"),
        ({"cases": {"a": {"dtype": "float32", "deviation": "x"}}}, "`float`, got `str`"),
        ({"cases": {"a": {"dtype": "float32", "deviation": -1}}}, "case 'a': a deviation of -1"),
        ({"cases": {"a": {"dtype": "float32", "deviation": math.nan}}}, "a deviation of nan is"),
        ({"backend": "cpu"}, "is of 'cpu'; put it into a folder of that name"),
        ({"fingerprint": []}, "`object`, got `array`"),
        ({"cases": {"a": {"dtype": "float32", "deviation": 1, "tokens": 1}}}, "`array`, got `int`"),
    ],
)
def test_baseline_of_another_kind_is_refused(asked, capsys, change, text: str) -> None:
    path = accepted(asked, "fake")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert main([*asked, "--backend", "fake"]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_baseline_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match="cannot be read"):
        load(path)


def test_baseline_that_cannot_be_written_is_told_and_what_was_there_stays(tmp_path, monkeypatch):
    old = Baseline("fake", {}, "0", "today", "the first", {"a": Known("float32", 0.1)})
    path = save(tmp_path, old)

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BaselineError, match="cannot be written: No space left on device"):
        save(tmp_path, dataclasses.replace(old, reason="another"))
    assert load(path).reason == "the first"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(BaselineError, match="cannot be written: Not a directory"):
        save(path, old)


def test_pattern_that_fits_nothing_is_refused(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake", "--only", "huge/*"]) == 2
    assert "no case of set small that fits 'huge/*'" in capsys.readouterr().err


def test_places_that_cannot_be_written_are_told_before_anything_runs(asked, tmp_path, capsys):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "out")
    said = f"cannot write to {place}: {tmp_path / 'file'} is no folder to write to"
    assert main([*asked, "--backend", "fake", "--output", place]) == 2
    assert capsys.readouterr().err == f"anychip: error: --output: {said}\n"
    update = ["--backend", "fake", "--update", "--reason", "x", "--baseline", place]
    assert main([*asked, *update]) == 2
    assert capsys.readouterr().err == f"anychip: error: --baseline: {said}\n"


def test_baseline_that_is_a_file_is_refused(asked, tmp_path, capsys) -> None:
    (tmp_path / "file").touch()
    assert main([*asked, "--backend", "fake", "--baseline", str(tmp_path / "file")]) == 1
    assert "file is no folder; name one of baselines" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_model_behind(tmp_path: Path, number: int) -> None:
    words = ["regress", "--backend", "fake", "--repeats", "1", "--cache-dir", str(tmp_path / "c")]
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "anychip", *words]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while "10 of " not in process.stderr.readline():
            assert process.poll() is None
        assert list(tmp_path.glob("anychip-regress-*"))
        process.send_signal(number)
        assert "Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == 130
    finally:
        process.kill()
    assert not list(tmp_path.glob("anychip-regress-*"))
