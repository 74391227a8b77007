"""How steps are run: one after the other, in the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from anychip.plan import StepPlan, StepResult

if TYPE_CHECKING:
    from anychip.run.watched import Watching


Landed = tuple[StepResult, float, float]
"""What a step sampled, when it began and when it ended: monotonic seconds."""


class StepRunner(Protocol):
    """What computes a plan: `run.runner.Runner`, or a script in tests."""

    watching: Watching

    def stage(self, plan: StepPlan) -> None:
        """Do what can be done of the step to be run next; from any thread, while one runs."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step. Raises ChipError."""

    def close(self) -> None:
        """Give back the device."""


class Steps(Protocol):
    """Steps in flight. depth: how many may be launched and not collected."""

    depth: int

    def launch(self, plan: StepPlan) -> None:
        """Have a step run behind those launched before."""

    def collect(self) -> Landed:
        """Wait for the oldest step. Raises ChipError."""

    def run_beside(self, loop: Callable[[], None]) -> None:
        """Run the loop that launches and collects, and the steps."""


class InlineSteps:
    """Runs a step when its result is asked for."""

    depth = 1

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner
        self._plan: StepPlan | None = None

    def launch(self, plan: StepPlan) -> None:
        """Keep the plan."""
        self._plan = plan

    def collect(self) -> Landed:
        """Run it. Raises ChipError."""
        assert self._plan is not None, "nothing was launched"
        plan, self._plan = self._plan, None
        begun = time.monotonic()
        return self._runner.run(plan), begun, time.monotonic()

    def run_beside(self, loop: Callable[[], None]) -> None:
        """Run the loop, which runs the steps."""
        loop()
