"""A step that is run call by call gives the tokens of one that is not, and tells its operators."""

from __future__ import annotations

import pytest

from anychip.config import ServeConfig
from anychip.engine.offline import OfflineEngine
from anychip.request import SamplingParams
from anychip.run.timed_run import FIRST_WITHIN, TimedSteps
from tiny_models import make_hf_folder

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 40, 41]]
PARAMS = [
    SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True),
    SamplingParams(max_tokens=8, temperature=0.9, seed=3, allowed_token_ids=(7, 8, 9, 60)),
]
"""Greedy, and with a mask, which late calls read."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_hf_folder(tmp_path_factory.mktemp("tiny"))


def answers(offline):
    return [a.token_ids for params in PARAMS for a in offline.generate(PROMPTS, params)]


@pytest.mark.parametrize("backend", ["fake", "cpu"])
def test_timed_steps_compute_the_same(folder, backend):
    config = ServeConfig(model_path=str(folder), backend=backend, max_total_tokens=512)
    with OfflineEngine(config) as offline:
        plain = answers(offline)
    with OfflineEngine(config) as offline:
        runner = offline.engine.runner
        runner.timed = TimedSteps(1)
        timed = answers(offline)
        found, steps = runner.meter.figures, offline.engine.stats().steps
    assert timed == plain and all(len(tokens) == 8 for tokens in plain)
    calls = {name: one.calls for name, one in found.operators.items()}
    assert calls["embedding"] == steps and calls["mask_logits"] > 0
    assert all(one.seconds > 0 for one in found.operators.values())
    assert sum(one.seconds for one in found.operators.values()) <= found.chip_seconds
    assert 0 < found.chip_seconds <= found.seconds and found.errors == 0


def test_the_first_step_is_timed_soon_and_then_one_of_so_many():
    steps = TimedSteps(100)
    due = [n for n in range(1, 400) if steps.is_due()]
    assert due == [FIRST_WITHIN, FIRST_WITHIN + 100, FIRST_WITHIN + 200, FIRST_WITHIN + 300]
    assert not any(TimedSteps(0).is_due() for _ in range(10))
    each = TimedSteps(1)
    assert all(each.is_due() for _ in range(5))


@pytest.mark.parametrize("backend", ["fake", "cpu"])
def test_steps_like_the_one_before_are_counted_too(folder, backend):
    config = ServeConfig(model_path=str(folder), backend=backend, max_total_tokens=512)
    params = SamplingParams(max_tokens=90, temperature=0.0, ignore_eos=True)
    with OfflineEngine(config) as offline:
        runner = offline.engine.runner
        runner.timed = TimedSteps(10)
        offline.generate(PROMPTS[:1], params)
        steps = offline.engine.stats().steps
        found = runner.timed.operators["embedding"].calls
    assert steps >= 90 and found == steps // 10
