"""The centre: plan, run, commit. One thread calls it.

With overlapped steps (`overlap.py`) the next step is planned and launched before the oldest is
committed; without, each is committed before the next is planned.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from anychip.contract.errors import ChipError
from anychip.engine.grammar_queue import GrammarQueue, failed
from anychip.engine.grammars import EngineGrammars
from anychip.engine.messages import ProfileEnded, ProfileWish
from anychip.engine.meter import Meter
from anychip.engine.overlap import OverlappedSteps
from anychip.engine.steps import InlineSteps, StepRunner, Steps
from anychip.engine.timelines import Timelines
from anychip.figures import EngineFigures
from anychip.plan import SchedulerStats, StepPlan
from anychip.request import Failure, Request, StepOutput
from anychip.schedule.refusal import QueueFull, RequestRefused
from anychip.schedule.scheduler import Scheduler

if TYPE_CHECKING:
    from anychip.engine.profile import Profile

CHECK_EVERY_S = 60.0
"""Seconds between two looks through the scheduler's books; a look walks every page."""

log = logging.getLogger("anychip.engine")


class Engine:
    """A scheduler and a runner. `on_close` runs after the runner is closed.

    overlap: a step runs while the one before is booked; call `step` in a loop of `serve` then.
    grammars: what compiles them; without, no request may have one.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        on_close: Callable[[], None] | None = None,
        *,
        overlap: bool = False,
        grammars: EngineGrammars | None = None,
    ) -> None:
        self.scheduler, self.runner, self._on_close = scheduler, runner, on_close
        self._steps: Steps = OverlappedSteps(runner) if overlap else InlineSteps(runner)
        self._in_flight: deque[StepPlan] = deque()
        self._outputs: list[StepOutput] = []  # of requests that the scheduler does not know
        self._checked = time.monotonic()
        self._grammars = grammars
        self.meter = Meter()
        self._compiling = None if grammars is None else GrammarQueue(grammars, self.meter.compiled)
        self._timelines = Timelines()
        self._profile: Profile | None = None

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused (ValueError) with a clear text."""
        if request.params.grammar is None:
            self.scheduler.add(request)
            self._timelines.begin(request, compiling=False)
            return
        if self._compiling is None:
            raise RequestRefused(f"request {request.id!r} has a grammar; this engine knows none")
        if request.id in self._compiling:
            raise RequestRefused(f"request id {request.id!r} is in use; choose another")
        self.scheduler.refuse(request)
        self._compiling.add(request)
        self._timelines.begin(request, compiling=True)

    def abort(self, request_id: str) -> bool:
        """End the request of exactly this id; False where there is none."""
        last = None if self._compiling is None else self._compiling.abort(request_id)
        if last is not None:
            self._outputs.append(last)
            return True
        return self.scheduler.abort(request_id)

    def flush_cache(self) -> bool:
        """Empty the prefix cache; False while requests run or wait."""
        return self.scheduler.flush_cache()

    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self.scheduler.has_work() or bool(self._compiling) or bool(self._outputs)

    def step(self) -> list[StepOutput]:
        """One step. A fatal device error propagates; another ends the step's requests."""
        if self._compiling is not None and self._compiling.waiting:
            self._take_compiled(self._compiling)
        outputs, self._outputs = self._outputs, []
        outputs += self._step()
        return self._timelines.handed_over(outputs) if self._timelines.open else outputs

    def _take_compiled(self, compiling: GrammarQueue) -> None:
        """Queue those whose grammar is compiled."""
        if not self.scheduler.has_work():
            compiling.wait()
        for one in compiling.ready():
            if isinstance(one, StepOutput):
                self._outputs.append(one)
                continue
            try:
                self.scheduler.add(one)
                self._timelines.compiled(one.id)
            except RequestRefused as error:  # the queue has filled up meanwhile
                later = isinstance(error, QueueFull)
                failure = Failure.WAITED_TOO_LONG if later else Failure.INTERNAL
                self._outputs.append(failed(one.id, str(error), failure))

    def _step(self) -> list[StepOutput]:
        if not self._in_flight:
            self._launch(self.scheduler.plan)
        if not self._in_flight:
            return self.scheduler.take_outputs()
        if len(self._in_flight) < self._steps.depth:
            self._launch(self.scheduler.plan_ahead)
        plan, begun = self._in_flight.popleft(), time.monotonic()
        try:
            result, begin, end = self._steps.collect()
        except ChipError as error:
            self.meter.failed(error)
            if error.fatal:
                raise
            log.error("step %d failed: %s", plan.step, error)
            self._timelines.lost(plan)
            return self.scheduler.fail(plan, str(error))
        if self._timelines.flying:
            self._timelines.landed(plan, begin, end)
        if self._profile is not None:
            self._noted(self._profile, "wait", begun, plan)
        begun = time.monotonic()
        outputs = self.scheduler.commit(plan, result, end - begin)
        self.meter.landed(plan, end - begin, time.monotonic() - begun)
        if self._profile is not None:
            self._noted(self._profile, "commit", begun, plan)
        if not self._in_flight:
            self._check_when_idle()
        return outputs

    def start_profile(self, wish: ProfileWish, on_end: Callable[[ProfileEnded], None]) -> None:
        """Write down what steps do from the next one on. ValueError where a profile runs.

        on_end: told from another thread once the file is written, or could not be.
        """
        if self._profile is not None and not self._profile.over:
            raise ValueError(
                f"a profile runs already, into {self._profile.wish.path}; stop it first"
            )
        from anychip.engine.profile import Profile  # noqa: PLC0415 (most are never profiled)

        profile = Profile(wish, on_end)
        try:
            profile.start()
        except RuntimeError as error:
            raise ValueError(f"the profile needs a thread: {error}") from error
        self._profile = self.runner.watching.watch = profile

    def stop_profile(self) -> None:
        """End the profile; `on_end` is told. ValueError where none runs."""
        if self._profile is None or self._profile.over:
            raise ValueError("no profile runs; start one with /start_profile")
        self._profile.end("asked")

    def _noted(self, profile: Profile, name: str, begun: float, plan: StepPlan | None) -> None:
        """Have a profile know what was done since `begun`; forget one that is over."""
        profile.doing(name, begun, plan)
        if profile.over:
            self._profile = self.runner.watching.watch = None

    def serve(self, loop: Callable[[], None]) -> None:
        """Run a loop that steps, in the thread that it belongs to. Raises what it raises."""
        self._steps.run_beside(loop)

    def _launch(self, decide: Callable[[], StepPlan | None]) -> None:
        begun = time.monotonic()
        plan = decide()
        self.meter.planned(time.monotonic() - begun)
        if self._profile is not None:
            self._noted(self._profile, "plan", begun, plan)
        if plan is not None:
            if self._timelines.open:
                self._timelines.planned(plan, self.scheduler.place_of)
            self._in_flight.append(plan)
            self._steps.launch(plan)

    def _check_when_idle(self) -> None:
        """Look through the books between requests; a violation is a log line and a metric."""
        if self.scheduler.has_work():
            return
        now = time.monotonic()
        if now - self._checked < CHECK_EVERY_S:
            return
        self._checked = now
        for violation in self.scheduler.check():
            log.error("scheduler: %s", violation)

    def stats(self) -> SchedulerStats:
        """A snapshot after the last step."""
        return self.scheduler.stats()

    def figures(self) -> EngineFigures | None:
        """What was counted so far, where it is time to tell; to be used before the next step."""
        idle = not self._in_flight and not self.has_work()
        if not self.meter.is_due(idle=idle):
            return None
        return self.meter.snapshot(self.scheduler, len(self._compiling or ()))

    def close(self) -> None:
        """Give back the device."""
        self.meter.close()
        if self._profile is not None:
            self._profile.end("the engine ends")
            self._profile.join()
        self.runner.close()
        if self._grammars is not None:
            self._grammars.close()
        if self._on_close is not None:
            self._on_close()
