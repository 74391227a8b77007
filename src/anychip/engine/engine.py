"""The centre: plan, run, commit. One thread calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from anychip.contract.errors import ChipError
from anychip.plan import SchedulerStats, StepPlan, StepResult
from anychip.request import Request, StepOutput
from anychip.schedule.scheduler import Scheduler

CHECK_EVERY_S = 60.0
"""Seconds between two looks through the scheduler's books; a look walks every page."""

log = logging.getLogger("anychip.engine")


class StepRunner(Protocol):
    """What computes a plan: `run.runner.Runner`, or a script in tests."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step. Raises ChipError."""

    def close(self) -> None:
        """Give back the device."""


class Engine:
    """A scheduler and a runner. `on_close` runs after the runner is closed."""

    def __init__(
        self, scheduler: Scheduler, runner: StepRunner, on_close: Callable[[], None] | None = None
    ) -> None:
        self.scheduler, self.runner, self._on_close = scheduler, runner, on_close
        self._checked = time.monotonic()

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused (ValueError) with a clear text."""
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """End the request of exactly this id; False where there is none."""
        return self.scheduler.abort(request_id)

    def flush_cache(self) -> bool:
        """Empty the prefix cache; False while requests run or wait."""
        return self.scheduler.flush_cache()

    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self.scheduler.has_work()

    def step(self) -> list[StepOutput]:
        """One step. A fatal device error propagates; another ends the step's requests."""
        plan = self.scheduler.plan()
        if plan is None:
            return self.scheduler.take_outputs()
        begun = time.perf_counter()
        try:
            result = self.runner.run(plan)
        except ChipError as error:
            if error.fatal:
                raise
            log.error("step %d failed: %s", plan.step, error)
            return self.scheduler.fail(plan, str(error))
        seconds = time.perf_counter() - begun
        outputs = self.scheduler.commit(plan, result, seconds)
        self._check_when_idle()
        return outputs

    def _check_when_idle(self) -> None:
        """Look through the books between requests; a violation is a log line and a metric."""
        now = time.monotonic()
        if self.scheduler.has_work() or now - self._checked < CHECK_EVERY_S:
            return
        self._checked = now
        for violation in self.scheduler.check():
            log.error("scheduler: %s", violation)

    def stats(self) -> SchedulerStats:
        """A snapshot after the last step."""
        return self.scheduler.stats()

    def close(self) -> None:
        """Give back the device."""
        self.runner.close()
        if self._on_close is not None:
            self._on_close()
