"""The baselines of the repository: readable, complete, and still true where they are portable."""

from __future__ import annotations

from pathlib import Path

import pytest

from anychip.__main__ import main
from anychip.bench.regress_baseline import load
from anychip.bench.regress_case_files import package_cases
from anychip.run.fingerprint import fingerprint_id

FOLDER = Path(__file__).parents[2] / "bench" / "baselines"
FILES = sorted(FOLDER.glob("*/*.json"))


def test_every_chip_that_runs_here_has_a_baseline() -> None:
    assert {path.parent.name for path in FILES} == {"cpu", "fake", "kunlun", "torch"}


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}-{p.stem}" for p in FILES])
def test_baseline_is_named_as_what_it_holds_and_covers_the_small_set(path: Path) -> None:
    found = load(path)
    assert found.backend == path.parent.name
    assert found.fingerprint_id == path.stem == fingerprint_id(found.fingerprint)
    assert set(found.cases) >= {case.key for case in package_cases().sets["small"]}
    assert found.history[-1]["reason"] == found.reason


@pytest.mark.parametrize(
    ("backend", "only"), [("fake", "llama-bfloat16/page+1/*"), ("cpu", "llama-q4_1/*/cold")]
)
def test_chip_keeps_within_the_baseline(backend: str, only: str, tmp_path: Path, capsys) -> None:
    words = ["regress", "--backend", backend, "--only", only, "--baseline", str(FOLDER)]
    words += ["--repeats", "0", "--speed-limit", "0", "--cache-dir", str(tmp_path)]
    assert main(words) == 0, capsys.readouterr().out
