"""Steps whose numbers are written while the step before runs, and those that cannot be."""

from __future__ import annotations

import pytest

from anychip.config import ServeConfig
from anychip.engine.offline import OfflineEngine, run_requests
from anychip.plan import StepPlan, StepResult
from anychip.request import Request, SamplingParams
from served import wait_until
from tiny_models import make_hf_folder

LENGTHS = (3, 40, 9, 24, 33)


class Counting:
    """The runner of an engine; counts what it was given, and what of that was written ahead."""

    def __init__(self, engine) -> None:
        self._runner = engine.runner
        self.watching = engine.runner.watching
        self.plain = self.others = self.ahead = self.mixed_order = 0
        engine._steps._runner = self

    def _begun(self) -> int:
        begun = self._runner._begun
        return 0 if begun is None else begun.step

    def stage(self, plan: StepPlan) -> None:
        # As where the chip takes its time: the step before is on its way.
        wait_until(lambda: plan.step == 1 or self._begun() == plan.step - 1)
        self._runner.stage(plan)
        written = self._runner._written
        if written is not None and written.plan is plan:
            self.ahead += 1
            self.mixed_order += bool(written.previous) and not written.goes_on

    def run(self, plan: StepPlan) -> StepResult:
        self.plain += plan.plain
        self.others += not plan.plain
        return self._runner.run(plan)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_hf_folder(tmp_path_factory.mktemp("staged"))


def requests(**more) -> list[Request]:
    """Of different lengths, every second one drawn."""
    return [
        Request(
            id=f"r{n}",
            prompt=tuple(range(3 + n, 8 + 3 * n)),
            params=SamplingParams(
                max_tokens=length, temperature=n % 2 * 0.8, seed=n, ignore_eos=True, **more
            ),
        )
        for n, length in enumerate(LENGTHS)
    ]


def run(folder, asked: list[Request], *, overlap: bool) -> tuple[list[list[int]], Counting]:
    config = ServeConfig(model_path=str(folder), backend="fake", max_running_requests=8)
    with OfflineEngine(config, overlap=overlap) as offline:
        counting = Counting(offline.engine)
        found = run_requests(offline.engine, asked)
        assert offline.engine.scheduler.check() == []
    assert [one.error for one in found] == [None] * len(asked)
    return [list(one.token_ids) for one in found], counting


def test_answers_are_the_same_and_plain_steps_are_written_ahead(folder):
    alone, counted = run(folder, requests(), overlap=False)
    assert [len(tokens) for tokens in alone] == list(LENGTHS) and counted.ahead == 0
    beside, counted = run(folder, requests(), overlap=True)
    assert beside == alone
    assert counted.ahead == counted.plain >= max(LENGTHS) - 1
    assert counted.mixed_order > 0, "rows left, so that those behind them moved up"


def test_shaped_steps_in_between_are_written_as_they_run(folder):
    shaped = requests(repetition_penalty=1.3)[1]
    asked = [*requests()[2:], shaped]
    alone, _ = run(folder, asked, overlap=False)
    beside, counted = run(folder, asked, overlap=True)
    assert beside == alone
    assert counted.others >= LENGTHS[1] - 1
