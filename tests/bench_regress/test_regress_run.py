"""`anychip regress`: what got worse is found, named and told; what did not is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crooked_chip
from anychip.__main__ import main
from anychip.bench.regress_baseline import BaselineError, load
from anychip.bench.regress_cases import SETS, chosen

ONLY = "tiny-float32/17/*"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("regressed")
    with crooked_chip.installed(folder):
        yield folder


@pytest.fixture
def asked(site: Path, tmp_path: Path) -> list[str]:
    """Speeds are not judged: a test's machine has other work."""
    words = ["regress", "--cache-dir", str(site / "cache"), "--baseline", str(tmp_path / "base")]
    return [*words, "--only", ONLY, "--repeats", "1", "--speed-limit", "0"]


def accepted(asked: list[str], backend: str, reason: str = "the first") -> Path:
    """Make a baseline; its file."""
    folder = Path(asked[asked.index("--baseline") + 1])
    assert main([*asked, "--backend", backend, "--update", "--reason", reason]) == 0
    (path,) = (folder / backend).glob("*.json")
    return path


def test_sound_chip_passes_without_a_baseline_and_is_told_so(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake"]) == 0
    printed = capsys.readouterr()
    assert "5 cases on fake: none is worse" in printed.out
    assert "There is no baseline in" in printed.err
    for path in ("prefill", "chunked", "decode", "cached", "batch"):
        assert f"tiny-float32/17/{path}: deviation" in printed.err


def test_sound_chip_passes_against_its_own_baseline(asked, capsys) -> None:
    path = accepted(asked, "fake")
    assert main([*asked, "--backend", "fake"]) == 0
    assert "(the first), of this fingerprint" in capsys.readouterr().err
    known = load(path)
    assert set(known.cases) == {case.key for case in chosen("ci", ONLY)}
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
    assert "5 cases on crooked: 5 worse" in capsys.readouterr().out
    text = (output / "regress.md").read_text()
    assert f"fake.{op}: {op} diverges from the oracle" in text
    found = json.loads((output / "regress.json").read_text())
    assert found["worse"] == 5
    assert all(f"fake.{op}" in named for named in found["named"].values())


def test_broken_operator_is_found_without_a_baseline(asked, capsys) -> None:
    assert main([*asked, "--backend", "crooked", "--chip-option", "wrong=paged_attention"]) == 1
    assert "fake.paged_attention: paged_attention diverges" in capsys.readouterr().out


def test_wrong_token_is_found_though_its_logits_are_right(asked, capsys) -> None:
    only = ["--only", "tiny-float32/17/prefill"]
    assert main([*asked, *only, "--backend", "crooked", "--chip-option", "wrong=greedy"]) == 1
    printed = capsys.readouterr()
    assert "worse: token 0 is" in printed.out
    assert "fake.greedy: greedy diverges from the oracle" in printed.err


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
    assert "ok (the baseline is in float32)" in capsys.readouterr().out


def test_update_keeps_what_it_replaces_and_cases_that_were_not_run(asked) -> None:
    path = accepted(asked, "fake")
    raw = json.loads(path.read_text())
    raw["cases"]["tiny-float32/17/decode"]["deviation"] = 0.25
    raw["cases"]["gone/1/prefill"] = {"dtype": "float32", "deviation": 0.5}
    path.write_text(json.dumps(raw))
    known = load(accepted(asked, "fake", "kernels sum in another order"))
    assert known.reason == "kernels sum in another order"
    assert [entry["reason"] for entry in known.history] == ["the first", known.reason]
    change = known.history[-1]["changed"]["tiny-float32/17/decode"]
    assert change["old"]["deviation"] == 0.25
    assert change["new"]["deviation"] < 1e-5
    assert known.cases["gone/1/prefill"].deviation == 0.5


def test_update_without_a_reason_is_refused(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake", "--update"]) == 2
    assert "--update: say why the figures changed with --reason" in capsys.readouterr().err
    assert main([*asked, "--backend", "fake", "--reason", "because"]) == 2


def test_chip_without_figures_cannot_become_a_baseline(asked, capsys) -> None:
    failing = ["--backend", "fake", "--chip-option", "fail_allocation=40"]
    assert main([*asked, *failing, "--update", "--reason", "none"]) == 1
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": 99}, "has schema 99, this version reads 1"),
        ({"cases": {"a": {"speed": 1}}}, "lacks something or has too much"),
        ({"more": 1}, "lacks something or has too much"),
    ],
)
def test_baseline_of_another_kind_is_refused(asked, capsys, change, text: str) -> None:
    path = accepted(asked, "fake")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert main([*asked, "--backend", "fake"]) == 1
    assert text in capsys.readouterr().err


def test_baseline_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    path.write_text("{")
    with pytest.raises(BaselineError, match="cannot be read"):
        load(path)


def test_pattern_that_fits_nothing_is_refused(asked, capsys) -> None:
    assert main([*asked, "--backend", "fake", "--only", "huge/*"]) == 2
    assert "no case of set ci fits 'huge/*'" in capsys.readouterr().err


def test_keys_are_unique_and_the_ci_set_is_part_of_the_full_one() -> None:
    for cases in SETS.values():
        assert len({case.key for case in cases}) == len(cases)
    assert {c.key for c in SETS["ci"]} < {c.key for c in SETS["full"]}
