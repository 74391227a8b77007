"""A trace over several schedulers in virtual time, as a router's policy shares it out."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from anychip.plan import NOT_SAMPLED, CacheLimits, StepResult
from anychip.router.asking import Ask
from anychip.router.choosing import Policy, Seen
from anychip.schedule.options import SchedulerOptions
from anychip.schedule.scheduler import Scheduler
from prefixes.replay import ANSWER, StepCost
from prefixes.trace import Prompt


class Shared(msgspec.Struct, frozen=True):
    """What one policy came to. Tokens of prompts. first_token_s: of each call, virtual seconds.

    matched_tokens: what the policy believed to be cached where it sent the calls.
    """

    prompt_tokens: int
    cached_tokens: int
    matched_tokens: int
    by_worker: tuple[int, ...]
    reasons: dict[str, int]
    first_token_s: list[float]

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that was found."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def busiest(self) -> float:
        """Prompt tokens of the worker that was given most, as a multiple of the mean."""
        return max(self.by_worker) * len(self.by_worker) / sum(self.by_worker)


class Worker:
    """One scheduler with a clock of its own. window: calls that it runs at once."""

    def __init__(self, name: str, limits: CacheLimits, cost: StepCost, weight: float = 1.0) -> None:
        self.name, self.weight = name, weight
        self._cost, self._now = cost, 0.0
        self._window = limits.max_running
        self._scheduler = Scheduler(limits, frozenset(), SchedulerOptions(), clock=self._clock)
        self._open: dict[str, Prompt] = {}
        self._first: dict[str, float] = {}

    def _clock(self) -> float:
        return self._now

    def seen(self) -> Seen:
        """As a router sees it, with the calls that are not over."""
        tokens = sum(prompt.length for prompt in self._open.values())
        return Seen(self.name, len(self._open), tokens, self._window, self.weight)

    def add(self, number: int, prompt: Prompt, at: float) -> None:
        """A call comes."""
        self._now = max(self._now, at)
        self._open[str(number)] = prompt
        self._scheduler.add(prompt.request(str(number)))

    def until(self, at: float) -> Iterator[float]:
        """Run all steps that begin before this moment; the seconds to first tokens.

        Raises RuntimeError where a request fails, or what waits can never start.
        """
        while self._scheduler.has_work() and self._now < at:
            plan = self._scheduler.plan()
            if plan is None:
                raise RuntimeError(f"{self.name}: requests wait, and none can ever start")
            seconds = self._cost.of(plan)
            self._now += seconds
            tokens = tuple(ANSWER if row.sample else NOT_SAMPLED for row in plan.rows)
            for output in self._scheduler.commit(plan, StepResult(tokens=tokens), seconds):
                if output.error:
                    raise RuntimeError(output.error)
                if output.token_ids and output.request_id not in self._first:
                    self._first[output.request_id] = self._now
                    yield self._now - self._open[output.request_id].at
                if output.finish is not None:
                    del self._open[output.request_id]

    def found(self) -> tuple[int, int]:
        """Prompt tokens so far, and those found in the cache."""
        stats = self._scheduler.stats()
        return stats.prompt_tokens, stats.cached_tokens


def ask_of(prompt: Prompt) -> Ask:
    """What a router reads of this call, sent as token ids."""
    ids = prompt.request("").prompt
    return Ask("/generate", prompt=struct.pack(f"<{len(ids)}i", *ids), prompt_tokens=len(ids))


def share_out(prompts: Sequence[Prompt], policy: Policy, workers: Sequence[Worker]) -> Shared:
    """Each call goes where the policy sends it at its time. Raises RuntimeError, see Worker."""
    by_name = {worker.name: worker for worker in workers}
    given = dict.fromkeys(by_name, 0)
    reasons: dict[str, int] = {}
    first: list[float] = []
    matched = 0
    for number, prompt in enumerate(prompts):
        for worker in workers:
            first += worker.until(prompt.at)
        ask = ask_of(prompt)
        choice = policy.choose(ask, [worker.seen() for worker in workers])
        policy.served(ask, choice.name)
        by_name[choice.name].add(number, prompt, prompt.at)
        given[choice.name] += prompt.length
        reasons[choice.why] = reasons.get(choice.why, 0) + 1
        matched += choice.matched_tokens
    for worker in workers:
        first += worker.until(float("inf"))
    found = [worker.found() for worker in workers]
    return Shared(
        prompt_tokens=sum(prompt for prompt, _ in found),
        cached_tokens=sum(cached for _, cached in found),
        matched_tokens=matched,
        by_worker=tuple(given.values()),
        reasons=reasons,
        first_token_s=first,
    )
