"""A model that is loaded on a chip once and run by one engine after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from anychip.config import ServeConfig
from anychip.contract.memory import Memory
from anychip.engine.engine import Engine
from anychip.plan import CacheLimits
from anychip.request import NO_LOGPROBS, Request, SamplingParams, StepOutput
from anychip.run.memory_plan import (
    MemoryWishes,
    StepLimits,
    cache_limits,
    plan_memory,
    workspace_bytes,
)
from anychip.run.model_plan import Decide
from anychip.run.plan_run import Opened, open_run
from anychip.run.runner import Runner
from anychip.run.weights import DeviceWeights, load_weights
from anychip.schedule.hooks import NO_HOOKS, SchedulerHooks
from anychip.schedule.scheduler import Scheduler, SchedulerOptions

Logits = npt.NDArray[np.float32]


class LentWeights(DeviceWeights):
    """Weights that outlive the runner they are given to."""

    def release(self, chip: object) -> None:
        """Nothing: their owner frees them."""


@dataclass
class Answer:
    """One greedy answer: tokens, and the logits [V] that each was chosen from, where asked for.

    times: seconds from the start to each token. cached: prompt tokens found in the prefix cache.
    retractions: how often it had to start again. scores: log probabilities of the prompt's tokens
    from the second on, where asked for. error: why there are no more.
    """

    tokens: list[int] = field(default_factory=list)
    logits: list[Logits] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    cached: int = 0
    retractions: int = 0
    scores: list[float] = field(default_factory=list)
    error: str | None = None


@dataclass
class Session:
    """An engine and its runner, on a chip with this memory. asked: requests so far."""

    engine: Engine
    runner: Runner
    memory: Memory
    asked: int = 0

    def logits(self) -> Logits:
        """Logits [R, V] of the last step's sampling rows."""
        assert self.runner.last is not None
        tensor = self.runner.last.logits
        found = np.zeros(tensor.shape, np.float32)
        if found.size:
            self.memory.copy_out(tensor, found.reshape(-1).view(np.uint8).data)
        return found


class LoadedModel:
    """An opened chip with a model's weights on it. Use it as a context manager."""

    def __init__(self, config: ServeConfig) -> None:
        """Raises what `open_run` and `load_weights` raise; nothing stays open then."""
        self.config = config
        self.opened: Opened = open_run(config)
        try:
            opened = self.opened
            self.weights = load_weights(
                opened.checkpoint, opened.plan, opened.chip, lambda done, total: None
            )
        except BaseException:
            self.opened.close()
            raise

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the weights and the device."""
        self.weights.release(self.opened.chip)
        self.opened.close()

    @contextmanager
    def session(
        self,
        decide: Decide | None = None,
        *,
        chunk: int | None = None,
        hooks: SchedulerHooks = NO_HOOKS,
    ) -> Iterator[Session]:
        """An engine of its own caches. decide: who serves what, in place of the chip's own order.
        chunk: most tokens of one prompt in a step. hooks: what to provoke. Raises ChipError,
        NotEnoughMemory."""
        opened, decide = self.opened, decide or self.opened.decider
        chunk = min(chunk or opened.chunk, opened.chunk)
        running = opened.limits.max_running
        steps = StepLimits(running, max(chunk, running))
        arena, staging = workspace_bytes(opened.plan, steps, decide)
        limits = self._limits(steps, chunk, arena + staging)
        weights = LentWeights(self.weights.weights, self.weights.constants)
        runner = Runner(opened.chip, opened.plan, weights, limits, arena=arena, decide=decide)
        # As many at once as there is room for: whoever runs these knows what they produce.
        options = SchedulerOptions(
            radix=not self.config.disable_radix_cache, conservativeness=0.0, hooks=hooks
        )
        scheduler = Scheduler(limits, frozenset(), options)
        engine = Engine(scheduler, runner)
        try:
            yield Session(engine, runner, opened.chip.memory)
        finally:
            engine.close()

    def _limits(self, steps: StepLimits, chunk: int, workspace: int) -> CacheLimits:
        opened, config = self.opened, self.config
        wishes = MemoryWishes(config.mem_fraction_static, config.max_total_tokens)
        memory = opened.chip.memory
        plan = replace(opened.plan, weights=(), constants=())  # they are on the device already
        found = plan_memory(plan, memory.info(), workspace, steps, wishes, unified=memory.unified)
        return cache_limits(opened.plan, found, steps, min(chunk, found.longest))


def answer(
    session: Session,
    prompt: Sequence[int],
    count: int,
    *,
    goes_on: Callable[[Answer], bool] = lambda found: True,
) -> Answer:
    """Continue a prompt by `count` greedy tokens, or until `goes_on` says no after one of them.

    Raises ChipError (fatal ones), RequestRefused.
    """
    return answers(session, [prompt], count, goes_on=goes_on)[0]


def answers(
    session: Session,
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    goes_on: Callable[[Answer], bool] = lambda found: True,
    keep_logits: bool = True,
    score: bool = False,
) -> list[Answer]:
    """The same for several prompts at once; what comes behind a "no" is left out, for each.

    score: tell how probable the tokens of the prompts were.
    """
    scored = 0 if score else NO_LOGPROBS
    params = SamplingParams(
        max_tokens=count, temperature=0.0, ignore_eos=True, prompt_logprobs=scored
    )
    found = {str(session.asked + n): Answer() for n in range(len(prompts))}
    session.asked += len(prompts)
    engine, begun = session.engine, time.perf_counter()
    for id, prompt in zip(found, prompts, strict=True):
        engine.submit(Request(id=id, prompt=tuple(prompt), params=params))
    running = set(found)
    while running:
        outputs = [output for output in engine.step() if output.request_id in found]
        now = time.perf_counter() - begun
        for output in outputs:
            _note(found[output.request_id], output)
        sampled = [output for output in outputs if output.token_ids]
        rows = _rows(session, len(sampled), keep=keep_logits)
        for output, row in zip(sampled, rows, strict=True):
            _add(found[output.request_id], output, now, row)
        running -= {_over(engine, found[o.request_id], o, goes_on) for o in outputs}
    return list(found.values())


def _rows(session: Session, count: int, *, keep: bool) -> list[Logits | None]:
    """The logits of the outputs with a token: rows are answered in order. None where nobody asks,
    or where a row had no token, since it is not known which."""
    rows = session.logits() if keep and count else np.zeros((0, 0), np.float32)
    return list(rows) if len(rows) == count else [None] * count


def _add(answer: Answer, output: StepOutput, now: float, row: Logits | None) -> None:
    answer.tokens.extend(output.token_ids)
    answer.times.extend([now] * len(output.token_ids))
    if row is not None:
        answer.logits.append(row)


def _note(answer: Answer, output: StepOutput) -> None:
    """What an output tells beside its tokens."""
    answer.cached = max(answer.cached, output.cached_tokens)
    answer.retractions = max(answer.retractions, output.retractions)
    answer.scores.extend(score.logprob for score in output.prompt_logprobs)


def _over(
    engine: Engine, answer: Answer, output: StepOutput, goes_on: Callable[[Answer], bool]
) -> str | None:
    """The request's id where it has ended or is to end."""
    answer.error = output.error or answer.error
    if output.finish is None and answer.tokens and not goes_on(answer):
        engine.abort(output.request_id)
        return output.request_id
    return None if output.finish is None else output.request_id
