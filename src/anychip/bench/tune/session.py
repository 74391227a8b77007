"""The runs of both passes: interleaved, kept one by one, those that are there already left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from anychip.config import ServeConfig

from .command import replaced, words_of
from .judge import Series
from .measure import Measure, Measured
from .plan import BASE, Configuration, Pass, Plan, left_s, ordered
from .prepare import TuneError
from .servers import ServerFailed
from .state import Done, Runs, now

LOGS = "servers"
"""Folder of what the servers print."""

_LATE_S = 0.1
_PACE = 1.1


class Watcher(Protocol):
    """Hears how it goes on."""

    def begins(self, stage: Pass, number: int, of: int, name: str, left: float | None) -> None:
        """A run begins. of: runs that are known of. left: seconds that they take yet; None where
        nothing is known of that."""

    def ended(self, done: Done) -> None:
        """It is over, and on the disk."""


class Session:
    """Makes runs with servers of one base. measure: makes one; see `Measure`."""

    def __init__(
        self, plan: Plan, local: ServeConfig, runs: Runs, watcher: Watcher, measure: Measure
    ) -> None:
        self._plan, self._runs, self._watcher, self._measure = plan, runs, watcher, measure
        self._words = words_of(local)
        self._logs = runs.folder / LOGS
        self._logs.mkdir(exist_ok=True)
        self._count = 0

    def stage(self, stage: Pass, configurations: Sequence[Configuration]) -> list[Series]:
        """All repeats of one pass. Raises TuneError where the base cannot run."""
        before, repeats = self._count, self._plan.repeats
        known = before + repeats * len(configurations)
        for repeat in range(repeats):
            for one in ordered(configurations, repeat):
                self._count += 1
                if self._runs.find(stage, repeat, one) or self._runs.broken(one):
                    continue
                took = [done.took_s for done in self._runs.done]
                left = left_s(took, len(took) + known - self._count + 1)
                self._watcher.begins(stage, self._count, known, one.label, left)
                self._watcher.ended(self._run(stage, repeat, one))
        return self._runs.series(stage, configurations)

    def _run(self, stage: Pass, repeat: int, one: Configuration) -> Done:
        begun, measured, broken = time.monotonic(), None, ""
        log = self._logs / f"{self._count:03}.log"
        try:
            measured = self._measure(replaced(self._words, one.changes), log)
        except ServerFailed as error:
            broken = str(error)
        done = Done(
            stage=stage,
            repeat=repeat,
            configuration=one,
            at=now(),
            took_s=time.monotonic() - begun,
            measured=measured,
            broken=broken,
        )
        if broken and one == BASE:
            raise TuneError(f"the base does not run, so there is nothing to compare with: {broken}")
        self._runs.add(done)
        return done


def notes_of(runs: Sequence[Done], plan: Plan) -> tuple[str, ...]:
    """What to know about the figures: whether the load was too light, or the client too slow."""
    found = [done.measured for done in runs if done.measured is not None]
    base = [d.measured for d in runs if d.measured is not None and d.configuration == BASE]
    notes = []
    span = plan.load.span_s / plan.load.speed
    if plan.objective == "throughput" and base and _kept_up(base, span):
        notes.append(
            f"the base kept up with the trace ({span:,.1f} s), so throughput is the trace's own"
            " rate and tells little: raise --speed, or take --objective ttft or tpot"
        )
    late = max((run.late_s for run in found), default=0.0)
    if late > _LATE_S:
        notes.append(
            f"the client itself sent a call {late:.2f} s late, so it may be what limits: lower"
            " --speed, or free some cores for it"
        )
    return tuple(notes)


def _kept_up(runs: Sequence[Measured], span: float) -> bool:
    return span > 0 and all(run.seconds <= _PACE * span for run in runs)
