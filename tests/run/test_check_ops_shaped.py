"""--check-ops, coverage and bisect where logits are shaped and probabilities told."""

from __future__ import annotations

from pathlib import Path

import pytest

import crooked_chip
import tiny_models
from answers.equality import config
from answers.shaped import ask, assert_chosen, assert_scored, run
from anychip.config import ServeConfig
from anychip.engine.bisect_run import Question, bisect
from anychip.engine.build import checker_of
from anychip.engine.offline import OfflineEngine
from anychip.run.coverage import coverage

AROUND_SAMPLING = {"adjust_logits", "mask_logits", "token_logprobs", "top_logprobs"}
PROMPT = [17, 90, 41, 90, 200]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", autouse=True)
def crooked(tmp_path_factory):
    with crooked_chip.installed(tmp_path_factory.mktemp("site")):
        yield


REQUEST = ask(
    "a",
    PROMPT,
    max_tokens=3,
    frequency_penalty=1.5,
    repetition_penalty=1.4,
    allowed_token_ids=tuple(range(0, 384, 2)),
    logprobs=2,
    prompt_logprobs=1,
)


def checked(folder: Path, kept: Path, **changes):
    asked = config(folder, check_ops=True, check_ops_dir=str(kept), dtype="float32", **changes)
    with OfflineEngine(asked) as offline:
        (got,) = run(offline, [REQUEST])
        return checker_of(offline.engine), got


@pytest.mark.parametrize("backend", ["fake", "cpu"])
def test_a_sound_chip_is_sound_and_answers_as_without_checks(folder, tmp_path, backend) -> None:
    checker, got = checked(folder, tmp_path, backend=backend)
    assert checker.divergences == []
    assert {op for op, *_ in checker.counts.worst} >= AROUND_SAMPLING
    model = tiny_models.make_hf_model()
    assert_chosen(model, REQUEST, got)
    assert_scored(model, PROMPT, 1, got.scores, 1)
    assert_scored(model, [*PROMPT, *got.tokens], len(PROMPT), got.logprobs, 2)


@pytest.mark.parametrize("op", ["adjust_logits", "token_logprobs"])
def test_a_wrong_operator_around_sampling_is_named(folder, tmp_path, op) -> None:
    checker, _ = checked(folder, tmp_path, backend="crooked", chip_option={"wrong": op})
    assert [found.divergence.op for found in checker.found.values()] == [op]


def test_coverage_names_them(folder) -> None:
    report = coverage(ServeConfig(model_path=str(folder), backend="cpu"))
    assert {row.op for row in report.rows if row.kind == "native"} >= AROUND_SAMPLING
    assert report.missing == []


def test_bisect_finds_an_operator_as_before(folder, tmp_path) -> None:
    asked = ServeConfig(
        model_path=str(folder),
        backend="crooked",
        chip_option={"wrong": "rms_norm", "factor": "-3"},
        cache_dir=str(tmp_path),
    )
    found = bisect(Question(asked, "crooked", "hello there", 3), lambda line: None)
    assert [culprit.op for culprit in found.culprits] == ["rms_norm"]
