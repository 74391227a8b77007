"""A trace through the real scheduler in virtual time: no chip, a step's cost is a formula."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from anychip.plan import NOT_SAMPLED, CacheLimits, SchedulerStats, StepPlan, StepResult
from anychip.schedule.options import SchedulerOptions
from anychip.schedule.scheduler import Scheduler
from prefixes.trace import Prompt

ANSWER = 2**30
"""The token of every answer: in no prompt, so answers are never found again."""


class StepCost(msgspec.Struct, frozen=True):
    """Seconds of a step: so much, and so much for each token."""

    step: float = 0.01
    token: float = 0.0001

    def of(self, plan: StepPlan) -> float:
        """Seconds of this step."""
        return self.step + self.token * plan.token_count


class Outcome(msgspec.Struct, frozen=True):
    """What one replay found. Tokens of prompts; seconds of virtual time.

    kept_pages: in the cache at its end.
    """

    prompt_tokens: int
    cached_tokens: int
    evicted_pages: int
    kept_pages: int
    retractions: int
    steps: int
    seconds: float

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that was found."""
        return self.cached_tokens / self.prompt_tokens


class Replay:
    """Adds each request at its time and runs steps until all are answered.

    Raises RuntimeError for a request that ends in an error, or is not answered.
    """

    def __init__(
        self,
        limits: CacheLimits,
        options: SchedulerOptions,
        cost: StepCost,
        *,
        check_every: int = 0,
    ) -> None:
        """check_every: steps between two checks of the scheduler's books; 0: never."""
        self._now = 0.0
        self._cost, self._check_every = cost, check_every
        self.scheduler = Scheduler(limits, frozenset(), options, clock=lambda: self._now)

    def run(
        self, prompts: Sequence[Prompt], progress: Callable[[int], None] = lambda _: None
    ) -> Outcome:
        """Replay the trace, behind what was replayed before.

        progress: is told how many are answered, after each step.
        """
        start, before = self._now, self.scheduler.stats()
        coming, answered = deque(enumerate(prompts)), 0
        while coming or self.scheduler.has_work():
            while coming and start + coming[0][1].at <= self._now:
                number, prompt = coming.popleft()
                self.scheduler.add(prompt.request(str(number)))
            plan = self.scheduler.plan()
            if plan is None:
                if not coming:
                    raise RuntimeError("requests wait, and none of them can ever start")
                self._now = start + coming[0][1].at
                continue
            answered += self._step(plan)
            progress(answered)
        return self._outcome(before, self._now - start)

    def _step(self, plan: StepPlan) -> int:
        seconds = self._cost.of(plan)
        self._now += seconds
        tokens = tuple(ANSWER if row.sample else NOT_SAMPLED for row in plan.rows)
        outputs = self.scheduler.commit(plan, StepResult(tokens=tokens), seconds)
        for output in outputs:
            if output.error:
                raise RuntimeError(output.error)
        if self._check_every and plan.step % self._check_every == 0:
            found = self.scheduler.check()
            if found:
                raise RuntimeError("; ".join(found))
        return sum(output.finish is not None for output in outputs)

    def _outcome(self, before: SchedulerStats, seconds: float) -> Outcome:
        after = self.scheduler.stats()
        return Outcome(
            prompt_tokens=after.prompt_tokens - before.prompt_tokens,
            cached_tokens=after.cached_tokens - before.cached_tokens,
            evicted_pages=after.evicted_pages - before.evicted_pages,
            kept_pages=after.pages_cached,
            retractions=after.retractions - before.retractions,
            steps=after.steps - before.steps,
            seconds=seconds,
        )
