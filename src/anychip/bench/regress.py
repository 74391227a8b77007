"""`anychip regress`: every case of a set on one chip, judged by what was measured before."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from anychip.bench import regress_baseline as baselines
from anychip.bench.regress_baseline import Baseline, BaselineError, Known
from anychip.bench.regress_cases import SMALL, Case, Cases, Place
from anychip.bench.regress_judge import Outcome, Rules, judge
from anychip.bench.regress_measure import INFINITE, Figures, measure, place_of, prompts_of
from anychip.bench.regress_model import config_of
from anychip.bench.regress_naming import MOST_NAMED, Named, first_divergence
from anychip.bench.regress_reference import References
from anychip.bench.regress_report import Report, counted
from anychip.bench.regress_speed import LEAST_SECONDS, Timing
from anychip.config import ServeConfig
from anychip.contract.discovery import open_chip
from anychip.contract.registration import read_options
from anychip.engine.loaded import LoadedModel
from anychip.run.fingerprint import fingerprint_id, fingerprint_of
from anychip.run.plan_run import chip_options

RETRIES = 4
"""How often a case that seems slower is measured again."""


@dataclass(frozen=True)
class Question:
    """What to run. config: the chip, and the demo model's path where a case has it.

    folder: for the models that are written. only: a pattern over the cases' keys.
    speed_limit: least share of the baseline's speed, 0: not judged. repeats: timed runs of a case.
    """

    config: ServeConfig
    cases: Cases
    baseline: Path
    folder: Path
    set: str = SMALL
    only: str | None = None
    speed_limit: float = 0.5
    repeats: int = 3

    @property
    def chosen(self) -> tuple[Case, ...]:
        """What is run."""
        return self.cases.chosen(self.set, self.only)

    @property
    def timing(self) -> Timing:
        """Where nobody judges the speed, no more runs are made than were asked for."""
        return Timing(self.repeats, LEAST_SECONDS if self.speed_limit else 0.0)


class Watcher(Protocol):
    """Hears how a run goes on."""

    def begins(self, text: str, cases: int) -> None:
        """text: what is run and what it is compared with."""

    def case_begins(self, key: str) -> None:
        """The case that is run now."""

    def case_ended(self, outcome: Outcome) -> None:
        """It is over and judged."""


def regress(asked: Question, watcher: Watcher) -> Report:
    """Run and judge. Raises BaselineError, CasesError and what a start raises."""
    cases = asked.chosen
    fingerprint = _fingerprint(asked.config)
    id = fingerprint_id(fingerprint)
    before = baselines.best(asked.baseline, asked.config.backend, fingerprint, id)
    same = before is not None and before.fingerprint_id == id
    compared = _compared(asked, before, same=same)
    head = f"{counted(len(cases))} on {asked.config.backend}, fingerprint {id}. {compared}"
    watcher.begins(head, len(cases))
    run = _Run(asked, before.cases if before else {}, Rules(asked.speed_limit, same), watcher)
    for _, group in groupby(cases, key=lambda case: case.model):
        run.model(list(group))
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Report(
        asked.config.backend, date, fingerprint, id, compared, tuple(run.outcomes), run.named
    )


def accept(folder: Path, report: Report, reason: str) -> Path:
    """Make a report's figures the baseline of its fingerprint; what they replace is kept.

    Raises BaselineError where the file that is there is none, or a case has no figures.
    """
    lost = [outcome.key for outcome in report.outcomes if outcome.now.deviation == INFINITE]
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

    def model(self, group: Sequence[Case]) -> None:
        """All cases of one model, loaded once."""
        asked = self.asked
        with LoadedModel(config_of(asked.config, asked.cases, group, asked.folder)) as model:
            place = place_of(model, asked.cases.sizes.chunk)
            one = _Model(model, place, References(model.opened.checkpoint, place.context))
            known = len(self.named)
            for case in group:
                self.watcher.case_begins(case.key)
                outcome = self._case(one, case)
                self.outcomes.append(outcome)
                if (outcome.diverges or outcome.now.wrong) and len(self.named) < known + MOST_NAMED:
                    self.named[case.key] = first_divergence(model, case, one.place)
                self.watcher.case_ended(outcome)

    def _case(self, one: _Model, case: Case) -> Outcome:
        now = one.measure(case, self.asked.timing)
        outcome = self._judged(one, case, now)
        for _ in range(RETRIES):  # others may have used the machine: the best counts
            if not outcome.slower:
                break
            now = now.with_speed_of(one.measure(case, self.asked.timing.more(RETRIES)))
            outcome = self._judged(one, case, now)
        return outcome

    def _judged(self, one: _Model, case: Case, now: Figures) -> Outcome:
        before = self.before.get(case.key)
        return judge(case.key, now, before, self.rules, lambda: one.limit(case))


@dataclass(frozen=True)
class _Model:
    """A loaded model, what lengths mean on its chip, and what is right."""

    model: LoadedModel
    place: Place
    references: References

    def measure(self, case: Case, timing: Timing) -> Figures:
        """A case's figures."""
        return measure(self.model, case, self.place, self.references, timing)

    def limit(self, case: Case) -> float:
        """What rounding explains of a case where there is no baseline."""
        dtype = self.model.opened.plan.dtype
        if not case.how.scored:
            return self.references.limit(dtype)
        prompt = prompts_of(self.model, case, self.place)[0]
        return self.references.score_limit(prompt, dtype)


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
