"""Counts what the engine does, for metrics: cheap at each step, and nothing here raises."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from anychip.contract.errors import ChipError
from anychip.engine.device_watch import DeviceWatch
from anychip.figures import (
    GRAMMAR_SECONDS,
    STEP_ROWS,
    STEP_SECONDS,
    STEP_TOKENS,
    Buckets,
    EngineFigures,
    Guard,
    RunFigures,
)
from anychip.plan import StepPlan

EVERY_S = 0.2
"""Seconds between two snapshots while steps follow each other."""

COUNTED_AT_ONCE = 64
"""Steps that wait to be counted at the most."""


class Queues(Protocol):
    """What a snapshot asks the scheduler."""

    def waiting(self) -> dict[str, int]:
        """Requests by what they wait for."""

    def tokens_in_flight(self) -> int:
        """Positions that running requests have in the cache."""


class Meter:
    """One engine's counts, from the thread that plans and commits.

    run: the runner's counts. watch: what reads the device. clock: seconds, the system's monotonic
    one unless a test has its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = RunFigures()
        self.watch: DeviceWatch | None = None
        self._clock = clock
        self._guard = Guard("the engine")
        phases = dict.fromkeys(("plan", "commit", "run"), 0.0)
        self._figures = EngineFigures(python_seconds=phases)
        self._landed: list[tuple[StepPlan, float]] = []  # not counted yet
        self._taken: float | None = None

    def planned(self, seconds: float) -> None:
        """A step was planned, or nothing could be."""
        self._figures.python_seconds["plan"] += seconds

    def landed(self, plan: StepPlan, seconds: float, commit_seconds: float) -> None:
        """A step ran for so long and was committed in so long. It is counted with others: many at
        once cost less than one behind each step, when its code is in no cache."""
        self._figures.python_seconds["commit"] += commit_seconds
        self._landed.append((plan, seconds))
        if len(self._landed) >= COUNTED_AT_ONCE:
            self._count_landed()

    def failed(self, error: ChipError) -> None:
        """The chip raised an error."""
        key = fact_of(error)
        self._figures.chip_errors[key] = self._figures.chip_errors.get(key, 0) + 1

    def compiled(self, seconds: float) -> None:
        """A grammar was compiled."""
        self._figures.grammar_compiles.observe(seconds, GRAMMAR_SECONDS)

    def is_due(self, *, idle: bool) -> bool:
        """Whether a snapshot should be taken: now and then, and always before a rest."""
        return idle or self._taken is None or self._clock() - self._taken >= EVERY_S

    def snapshot(self, queues: Queues, compiling: int) -> EngineFigures:
        """The counts so far. compiling: requests whose grammar is compiled. The same object at
        each call: encode it before the next step."""
        self._taken = self._clock()
        self._count_landed()
        self._guard(lambda: self._complete(queues, compiling))
        return self._figures

    def close(self) -> None:
        """End what reads the device."""
        if self.watch is not None:
            self.watch.close()

    def _complete(self, queues: Queues, compiling: int) -> None:
        found, run = self._figures, self.run
        found.taken_at = self._taken or 0.0
        found.run = run
        found.python_seconds["run"] = max(run.seconds - run.chip_seconds, 0.0)
        found.errors = self._guard.errors + run.errors
        if self.watch is not None:
            found.device = self.watch.latest
            found.errors += self.watch.errors
        found.waiting = {**queues.waiting(), "grammar": compiling}
        found.tokens_in_flight = queues.tokens_in_flight()

    def _count_landed(self) -> None:
        landed, self._landed = self._landed, []
        for plan, seconds in landed:
            self._guard(partial(self._count, plan, seconds))

    def _count(self, plan: StepPlan, seconds: float) -> None:
        found, rows = self._figures, len(plan.rows)
        tokens, decoded = plan.token_count, plan.decoding
        if not plan.plain:
            decoded = sum(len(row.tokens) for row in plan.rows[: plan.decoding])
        phase = "mixed" if 0 < plan.decoding < rows else "decode" if plan.decoding else "prefill"
        if phase not in found.step_seconds:
            found.step_seconds[phase] = Buckets()
        found.step_seconds[phase].observe(seconds, STEP_SECONDS)
        found.batch_rows.observe(rows, STEP_ROWS)
        found.batch_tokens.observe(tokens, STEP_TOKENS)
        _add(found.step_tokens, decoded, tokens - decoded)
        _add(found.step_rows, plan.decoding, rows - plan.decoding)


def fact_of(error: ChipError) -> tuple[str, str]:
    """Layer and kind of a chip's error, as metrics label them."""
    return error.fact.layer.value, error.fact.kind.value


def _add(counts: dict[str, int], decode: int, prefill: int) -> None:
    counts["decode"] = counts.get("decode", 0) + decode
    counts["prefill"] = counts.get("prefill", 0) + prefill
