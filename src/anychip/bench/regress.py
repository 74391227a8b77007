"""`anychip regress`: every case of a set on one chip, judged by what was measured before."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from anychip.bench import regress_baseline as baselines
from anychip.bench.regress_baseline import Baseline, BaselineError, Known
from anychip.bench.regress_cases import DEMO, Case, chosen
from anychip.bench.regress_judge import Outcome, Rules, judge
from anychip.bench.regress_measure import (
    Figures,
    Named,
    References,
    first_divergence,
    measure,
    own_limit,
)
from anychip.bench.regress_report import Report, counted
from anychip.config import ServeConfig
from anychip.contract.discovery import open_chip
from anychip.contract.registration import read_options
from anychip.engine.loaded import LoadedModel
from anychip.model.tiny import write_tiny
from anychip.run.fingerprint import fingerprint_id, fingerprint_of
from anychip.run.plan_run import chip_options

CONTEXT = 512
RETRIES = 4
"""How often a case that seems slower is measured again."""


@dataclass(frozen=True)
class Question:
    """What to run. config: the chip, and the demo model's path where the set has it.

    folder: for the models that are written. only: a pattern over the cases' keys.
    speed_limit: least share of the baseline's speed, 0: not judged.
    """

    config: ServeConfig
    set: str
    baseline: Path
    folder: Path
    only: str | None = None
    speed_limit: float = 0.5
    repeats: int = 3


class Watcher(Protocol):
    """Hears how a run goes on."""

    def begins(self, text: str, cases: int) -> None:
        """text: what is run and what it is compared with."""

    def case_begins(self, key: str) -> None:
        """The case that is run now."""

    def case_ended(self, outcome: Outcome) -> None:
        """It is over and judged."""


def regress(asked: Question, watcher: Watcher) -> Report:
    """Run and judge. Raises BaselineError and what a start raises."""
    cases = chosen(asked.set, asked.only)
    fingerprint = _fingerprint(asked.config)
    id = fingerprint_id(fingerprint)
    before = baselines.best(asked.baseline, asked.config.backend, fingerprint, id)
    same = before is not None and before.fingerprint_id == id
    compared = _compared(asked, before, same=same)
    head = f"{counted(len(cases))} on {asked.config.backend}, fingerprint {id}. {compared}"
    watcher.begins(head, len(cases))
    run = _Run(asked, before.cases if before else {}, Rules(asked.speed_limit, same), watcher)
    for model, group in groupby(cases, key=lambda case: case.model):
        run.model(model, group)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Report(
        asked.config.backend, date, fingerprint, id, compared, tuple(run.outcomes), run.named
    )


def accept(folder: Path, report: Report, reason: str) -> Path:
    """Make a report's figures the baseline of its fingerprint; what they replace is kept.

    Raises BaselineError where the file that is there is none, or a case has no figures.
    """
    lost = [outcome.key for outcome in report.outcomes if outcome.now.deviation == float("inf")]
    if lost:
        raise BaselineError(f"{lost[0]} has no figures to accept: mend it first, or use --only")
    old = baselines.best(folder, report.backend, report.fingerprint, report.fingerprint_id)
    if old is not None and old.fingerprint_id != report.fingerprint_id:
        old = None
    new = Baseline(
        report.backend,
        report.fingerprint,
        report.fingerprint_id,
        report.date,
        reason,
        {outcome.key: Known.of(outcome.now) for outcome in report.outcomes},
    )
    return baselines.save(folder, baselines.updated(old, new))


@dataclass
class _Run:
    """The cases so far."""

    asked: Question
    before: Mapping[str, Known]
    rules: Rules
    watcher: Watcher
    outcomes: list[Outcome] = field(default_factory=list)
    named: dict[str, Named] = field(default_factory=dict)

    def model(self, name: str, cases: Iterable[Case]) -> None:
        """All cases of one model, loaded once."""
        with LoadedModel(_config(self.asked, name)) as model:
            references = References(model.opened.checkpoint)
            for case in cases:
                self.watcher.case_begins(case.key)
                self._case(model, case, references)
                self.watcher.case_ended(self.outcomes[-1])

    def _case(self, model: LoadedModel, case: Case, references: References) -> None:
        def judged(now: Figures) -> Outcome:
            return judge(
                case.key,
                now,
                self.before.get(case.key),
                self.rules,
                lambda: own_limit(model, case, references, now),
            )

        now = measure(model, case, references, self.asked.repeats)
        outcome = judged(now)
        for _ in range(RETRIES):  # others may have used the machine: the best counts
            if not outcome.slower:
                break
            again = measure(model, case, references, RETRIES * self.asked.repeats)
            now = now.with_speed_of(again)
            outcome = judged(now)
        self.outcomes.append(outcome)
        if outcome.diverges or now.wrong:
            self.named[case.key] = first_divergence(model, case)


def _config(asked: Question, model: str) -> ServeConfig:
    """The chip of the question, the model of the set, and nothing else that was configured."""
    given = asked.config
    path = given.model_path
    if model != DEMO:
        path = str(write_tiny(asked.folder, model.removeprefix("tiny-"), context=CONTEXT))
    return ServeConfig(
        model_path=path,
        backend=given.backend,
        device_index=given.device_index,
        chip_option=given.chip_option,
        op=given.op,
        allow_host_ops=given.allow_host_ops,
        dtype=given.dtype,
        cache_dir=given.cache_dir,
        build_dir=given.build_dir,
        context_length=CONTEXT,
        max_running_requests=4,
        max_total_tokens=4 * CONTEXT,
    )


def _compared(asked: Question, before: Baseline | None, *, same: bool) -> str:
    if before is None:
        where = str(asked.baseline / asked.config.backend)
        if not asked.baseline.is_absolute():
            where += f" (relative to the working directory {Path.cwd()})"
        return (
            f"There is no baseline in {where}: deviations are judged by what rounding explains, "
            "speeds are not judged. Name the folder with --baseline, or make a baseline of this "
            "run with --update --reason TEXT"
        )
    which = f"Baseline of {before.date} ({before.reason})"
    if same:
        return f"{which}, of this fingerprint"
    return f"{which}, of fingerprint {before.fingerprint_id}: speeds are not judged"


def _fingerprint(config: ServeConfig) -> dict[str, object]:
    options = chip_options(config)
    chip = open_chip(config.backend, config.device_index, options)
    try:
        given, opened = config.chip_option | _wishes(config), read_options(type(chip), options)
        return fingerprint_of(chip, config.device_index, given, opened)
    finally:
        chip.close()


def _wishes(config: ServeConfig) -> dict[str, str]:
    """Settings that change figures, as options of the fingerprint."""
    found = {f"--op {op}": choice for op, choice in config.op.items()}
    if config.dtype != "auto":
        found["--dtype"] = config.dtype
    return found
