"""Times the steps of the real scheduler and runner, part by part."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anychip.config import ServeConfig
from anychip.contract.operators import Launch
from anychip.contract.optional import Capture
from anychip.contract.registration import Chip
from anychip.engine.loaded import LoadedModel, Session
from anychip.plan import StepPlan
from anychip.request import Request, SamplingParams
from anychip.run.plan_run import Opened

DRIFT = 0.05
"""Share by which running sequences may have outgrown their context before others take over."""

ROOM = 48
"""Positions a sequence beside those it is measured at: the scheduler keeps some for the next
steps of each, and its last page is not full."""

WARM_PREFILLS = 3
DECODE_TURNS, PREFILL_TURNS = 5, 2
"""Times that every operator is timed."""


class Unsteady(RuntimeError):
    """A step was not what was to be measured; the text tells what it was."""


@dataclass(frozen=True)
class Operator:
    """What one implementation takes of a step: its calls, and seconds of all of them together."""

    id: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    """Steps of one size. kind: decode or prefill. context: positions of each sequence (prefill: the
    prompt's tokens). positions: attended to, of all sequences together.

    The rest are seconds, each the median by itself. step: plan, run and commit together. run: from
    the plan to the tokens. native: the launches within it, until the queue is empty. python: the
    step without the launches, such as the scheduler, index arrays, copies of tokens.
    """

    kind: str
    batch: int
    context: int
    positions: int
    plan: float
    run: float
    commit: float
    native: float
    step: float
    python: float
    operators: tuple[Operator, ...]

    @property
    def python_share(self) -> float:
        """Of the step."""
        return self.python / self.step


@dataclass(frozen=True)
class Times:
    """One step; see Cost."""

    plan: float
    run: float
    commit: float
    native: float
    positions: int

    @property
    def step(self) -> float:
        """Seconds of the whole."""
        return self.plan + self.run + self.commit


def medians(found: Sequence[Times]) -> dict[str, float]:
    """Seconds by the names that Cost has for them."""
    median = statistics.median
    parts = {name: median(getattr(t, name) for t in found) for name in ("plan", "run", "commit")}
    return {
        **parts,
        "native": median(times.native for times in found),
        "step": median(times.step for times in found),
        "python": median(times.step - times.native for times in found),
    }


def positions_needed(context: int, batch: int, steps: int) -> int:
    """Positions that the longest sequence reaches while a context is measured, at most.

    steps: measured, behind one that is not. Sequences gain a position for each prompt that is
    computed behind theirs.
    """
    return context + batch + math.ceil(DRIFT * context) + steps + 1


def cache_needed(context: int, batch: int, steps: int) -> int:
    """Positions of the cache that `batch` sequences take."""
    return batch * (positions_needed(context, batch, steps) + ROOM)


class TimedCapture(Capture):
    """The chip's own way to run the launches of a step, timed until the queue is empty.

    seconds: of the last step's. gaps: seconds between the end of one and the begin of the next.
    behind: called after the launches, within their time. running: whether they run now.
    """

    def __init__(self, chip: Chip) -> None:
        self._inner, self._queue, self.seconds = chip.capture, chip.queue, 0.0
        self._ended, self.gaps = time.perf_counter(), list[float]()
        self.behind: Callable[[], None] | None = None
        self.running = False

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """One launch, which waits."""
        inner = launches if self._inner is None else (self._inner.capture(launches),)

        def timed() -> None:
            self.running = True
            began = time.perf_counter()
            self.gaps.append(began - self._ended)
            for launch in inner:
                launch()
            self._queue.synchronize(None)
            if self.behind is not None:
                self.behind()
            self._ended = time.perf_counter()
            self.seconds = self._ended - began
            self.running = False

        return timed


@contextmanager
def stepper(model: LoadedModel, config: ServeConfig) -> Iterator[Stepper]:
    """An engine of a loaded model, whose chip is timed from here on.

    Raises ChipError, NotEnoughMemory.
    """
    chip = model.opened.chip
    native = chip.capture = TimedCapture(chip)
    with model.session(chunk=config.chunked_prefill_size) as session:
        yield Stepper(session, model.opened, native)


class Stepper:
    """Measures one step after another. cache_tokens: positions that the cache holds.

    All raise ChipError, RequestRefused, Unsteady.
    """

    def __init__(self, session: Session, opened: Opened, native: TimedCapture) -> None:
        """opened: chip and plan of the session. native: what its programs are captured by."""
        self._engine, self._runner, self._native = session.engine, session.runner, native
        self._queue, self._vocabulary = opened.chip.queue, opened.plan.config.vocab_size
        self._random, self._asked, self._running = random.Random(1), 0, list[str]()
        self.cache_tokens = session.engine.stats().pages_total * opened.plan.group.page_size

    def decodes(self, context: int, batches: Sequence[int], steps: int) -> Iterator[Cost]:
        """The largest batch first: smaller ones go on with some of its sequences."""
        reached = 0
        for batch in sorted(set(batches), reverse=True):
            if not self._running or reached > context * (1 + DRIFT):
                self.clear()
                self._fill(batch, context)
            self._keep(batch)
            found = [self._step("decode", batch) for _ in range(steps + 1)]
            yield self._cost("decode", batch, context, found[1:])
            reached = found[-1].positions // batch
        self.clear()

    def prefill(self, tokens: int) -> Cost:
        """One prompt in one step; the first run, which binds the program, does not count."""
        self.clear()
        found = []
        for _ in range(WARM_PREFILLS + 1):
            self._submit(tokens, 1)
            found.append(self._step("prefill", 1))
        self._running.clear()  # one token was asked for: each has ended
        return self._cost("prefill", 1, tokens, found[1:])

    def clear(self) -> None:
        """End what runs."""
        for name in self._running:
            self._engine.abort(name)
        self._running.clear()
        self._engine.scheduler.take_outputs()

    def _keep(self, batch: int) -> None:
        for name in self._running[batch:]:
            self._engine.abort(name)
        del self._running[batch:]
        self._engine.scheduler.take_outputs()

    def _submit(self, tokens: int, answer: int) -> None:
        self._asked += 1
        name = f"r{self._asked}"
        prompt = tuple(self._random.randrange(self._vocabulary) for _ in range(tokens))
        params = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        self._engine.submit(Request(id=name, prompt=prompt, params=params))
        self._running.append(name)

    def _fill(self, batch: int, context: int) -> None:
        """Compute the prompts; a first token is sampled for each."""
        for _ in range(batch):
            self._submit(context, 1 << 20)
        waiting = set(self._running)
        while waiting:
            for output in self._engine.step():
                if output.finish is not None:
                    raise Unsteady(f"a sequence ended early: {output.error or output.finish}")
                waiting.discard(output.request_id)

    def _step(self, kind: str, batch: int) -> Times:
        """One step."""
        scheduler, runner, clock = self._engine.scheduler, self._runner, time.perf_counter
        began = clock()
        plan = scheduler.plan()
        planned = clock()
        if plan is None or not _is_wanted(plan, kind, batch):
            raise Unsteady(f"no step of {kind} with {batch} rows could be had: {_told(plan)}")
        result = runner.run(plan)
        ran = clock()
        scheduler.commit(plan, result)
        committed = clock()
        return Times(
            planned - began,
            ran - planned,
            committed - ran,
            self._native.seconds,
            sum(row.start + len(row.tokens) for row in plan.rows),
        )

    def _operators(self, turns: int) -> tuple[Operator, ...]:
        """Each call of the last step alone; the dearest implementation first."""
        program = self._runner.last
        if program is None:
            raise Unsteady("no step has run")
        seconds: dict[str, float] = {}
        calls: dict[str, int] = {}
        for _ in range(turns):
            for call in program.calls:
                began = time.perf_counter()
                call.launch()
                self._queue.synchronize(None)
                took, name = time.perf_counter() - began, call.implementation.id
                seconds[name] = seconds.get(name, 0.0) + took / turns
                calls[name] = calls.get(name, 0) + 1
        found = (Operator(name, calls[name] // turns, took) for name, took in seconds.items())
        return tuple(sorted(found, key=lambda operator: -operator.seconds))

    def _cost(self, kind: str, batch: int, context: int, found: Sequence[Times]) -> Cost:
        """And the operators of the last step."""
        positions = round(statistics.median(times.positions for times in found))
        operators = self._operators(DECODE_TURNS if kind == "decode" else PREFILL_TURNS)
        return Cost(kind, batch, context, positions, **medians(found), operators=operators)


def _is_wanted(plan: StepPlan, kind: str, batch: int) -> bool:
    """Whether all rows are decodes, or the one row is a whole prompt."""
    if len(plan.rows) != batch or not all(row.sample for row in plan.rows):
        return False
    return all((row.start == 0) is (kind == "prefill") for row in plan.rows)


def _told(plan: StepPlan | None) -> str:
    if plan is None:
        return "the scheduler has nothing to run"
    return f"the step has {len(plan.rows)} rows and {plan.token_count} tokens"
