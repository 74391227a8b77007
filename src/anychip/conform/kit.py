"""The kit: levels in order, each needs the ones before it, and what ends a run early.

`run_kit` proves a chip in this process; `isolation.py` has the same run in processes of its own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from anychip.conform import build, execution, memory, models, operators, registration
from anychip.conform.index import CHECKS
from anychip.conform.proof import Check, Level, Proof, Status, failed, inconclusive, prove
from anychip.conform.result import CannotList, Listed, ProcessLost, Prover, Result, Watcher
from anychip.conform.selection import Selection
from anychip.conform.subject import Subject

Lister = Callable[[Subject], list[Check]]


LEVELS: Mapping[Level, Lister] = {
    Level.REGISTRATION: registration.checks,
    Level.BUILD: build.checks,
    Level.MEMORY: memory.checks,
    Level.EXECUTION: execution.checks,
    Level.OPERATORS: operators.checks,
    Level.MODELS: models.checks,
}
"""Level -> its checks for a subject, in the order in which they are proved."""

LOST_OF_A_SUBJECT, LOST_IN_A_ROW = 2, 5
"""So many lost processes end the checks of one subject, and the run."""


def run_kit(
    subject: Subject, levels: Collection[Level] = tuple(Level), only: Sequence[str] = ()
) -> list[Result]:
    """Prove a chip in this process: a crash of the chip is a crash of the caller.

    levels, only: see `Selection`; gates of earlier levels are run and are among the results.
    Raises ConfigError where a pattern of `only` matches nothing.
    """
    selection = Selection(tuple(level for level in Level if level in levels), tuple(only))
    return run_checks(InProcess(subject), selection, Watcher())


class InProcess:
    """Runs the checks of a subject in this process. A check that hangs is not ended.

    levels: whose checks; the kit's own unless a test brings some.
    """

    def __init__(self, subject: Subject, levels: Mapping[Level, Lister] = LEVELS) -> None:
        self._subject, self._levels = subject, levels
        self._found: dict[Level, dict[str, Check]] = {}

    def checks(self, level: Level) -> list[Listed]:
        """Listed once, kept. Raises CannotList where the chip does not let them be listed.

        Raises ValueError for the level's own mistake: a wrong id, two equal keys.
        """
        if level not in self._found:
            found = self._list(level)
            _check_list(level, found)
            self._found[level] = {check.key: check for check in found}
        return [Listed(c.id, c.level, c.subject, c.gate) for c in self._found[level].values()]

    def _list(self, level: Level) -> list[Check]:
        try:
            return self._levels[level](self._subject)
        except Exception as error:
            text = f"the checks cannot be listed: {type(error).__name__}: {error}"
            raise CannotList(text) from error

    def prove(self, check: Listed) -> Proof:
        """Run it."""
        try:
            self.checks(check.level)
        except CannotList as error:
            return failed(f"a second time, {error}")
        known = self._found[check.level].get(check.key)
        if known is None:
            return failed("the chip has this check in one process and lacks it in the next")
        return prove(known, self._subject)


def _check_list(level: Level, found: Sequence[Check]) -> None:
    for key, count in Counter(check.key for check in found).items():
        if count > 1:
            raise ValueError(f"level {level.value} lists the check {key!r} {count} times")
    for check in found:
        if check.id not in CHECKS or CHECKS[check.id][0] is not level or check.level is not level:
            raise ValueError(f"level {level.value} lists {check.key!r}, which the index does not")


def run_checks(
    prover: Prover, selection: Selection, watcher: Watcher, results: list[Result] | None = None
) -> list[Result]:
    """Run the selected checks level by level. results: filled on the way, for who is interrupted.

    A gate that fails, a level that cannot be listed and a process that is lost too often end the
    run: each level behind it that was asked for is one INCONCLUSIVE result.
    Raises ConfigError where a pattern of `only` matches nothing.
    """
    if selection.only:
        _refuse_unmatched(prover, selection)
    run = _Run(prover, selection, watcher, [] if results is None else results)
    for level in filter(selection.lists, Level):
        if not run.ended:
            run.level(level)
        elif level in selection.levels:
            run.add(Result(level.value, level, inconclusive(f"not run: {run.ended}")))
    return run.results


def _refuse_unmatched(prover: Prover, selection: Selection) -> None:
    listed: list[Listed] = []
    for level in filter(selection.lists, Level):
        try:
            listed += prover.checks(level)
        except CannotList:
            return  # the run tells it as its result
    selection.refuse_unmatched(listed)


class _Run:
    """The results so far. ended: why the levels behind the current one are not run."""

    def __init__(
        self, prover: Prover, selection: Selection, watcher: Watcher, results: list[Result]
    ) -> None:
        self._prover, self._selection, self._watcher = prover, selection, watcher
        self.results = results
        self.ended = ""

    def add(self, result: Result) -> None:
        self.results.append(result)
        self._watcher.check_ended(result)

    def level(self, level: Level) -> None:
        """Run the selected checks of a level, or say why they cannot be."""
        try:
            chosen = [c for c in self._prover.checks(level) if self._selection.takes(c)]
        except CannotList as error:
            self.add(Result(level.value, level, failed(str(error))))
            self.ended = f"the checks of level {level.value} cannot be listed"
            return
        if chosen:
            self._watcher.level_begins(level, len(chosen))
        losses = _Losses()
        for check in chosen:
            self._one(check, losses)

    def _one(self, check: Listed, losses: _Losses) -> None:
        reason = losses.reason(check.subject)
        if reason:
            self.add(Result(check.key, check.level, inconclusive(f"not run: {reason}")))
            return
        self._watcher.check_begins(check)
        start = time.perf_counter()
        try:
            proof = self._prover.prove(check)
            losses.in_a_row = 0
        except ProcessLost as error:
            proof = failed(str(error))
            losses.count(check.subject)
        self.add(Result(check.key, check.level, proof, time.perf_counter() - start))
        if losses.in_a_row >= LOST_IN_A_ROW:
            self.ended = losses.reason("")
        elif check.gate and not self._selection.only and proof.status is Status.FAIL:
            self.ended = self.ended or f"{check.key} failed"


class _Losses:
    """Processes lost within a level: a chip that always crashes must come to an end."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self._of: Counter[str] = Counter()

    def count(self, subject: str) -> None:
        self.in_a_row += 1
        self._of[subject] += 1

    def reason(self, subject: str) -> str:
        """Why the next check of a subject is not run; empty where it is."""
        if self.in_a_row >= LOST_IN_A_ROW:
            return f"{LOST_IN_A_ROW} checks in a row lost their process"
        if subject and self._of[subject] >= LOST_OF_A_SUBJECT:
            return f"{LOST_OF_A_SUBJECT} checks of {subject} lost their process"
        return ""
