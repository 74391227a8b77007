"""One scheduler's life: events happen to it, and all that it says is held against a reference.

Beyond what `table_model` notices: the pages of a request hold KV of its own namespace alone;
nothing that a failed or spoiled step wrote is ever read; each request that was taken ends once,
with the reason that is due and with tokens that begin the reference's answer; one that an abort
reached gets no token after it; what is refused is what cannot run.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import structs
from random_life import Event, World
from table_model import Session, TableRunner, expected

from anychip.plan import NOT_SAMPLED, CacheLimits, Row, StepPlan, StepResult
from anychip.request import Failure, FinishReason, Request, StepOutput
from anychip.schedule.scheduler import NOT_NUMBERS, QueueFull, RequestRefused, Scheduler

FAILED = "the chip said no"
HANG_S = 5.0
"""An event takes a millisecond; one that takes so long is taken for an endless loop."""


class LifeRunner(TableRunner):
    """The table model with namespaces, steps that fail, and answers that are not numbers."""

    def __init__(self, limits: CacheLimits, namespaces: Callable[[], dict[int, str]]) -> None:
        super().__init__(limits)
        self.namespaces = namespaces
        self.owner: dict[int, str] = {}
        self.spoiled: frozenset[int] = frozenset()

    def run(self, plan: StepPlan) -> StepResult:
        """One step. The rows of `spoiled` that sample write garbage and have no token."""
        asked = [row.sample and at in self.spoiled for at, row in enumerate(plan.rows)]
        names = self.namespaces()
        self.apply(plan)
        for row in plan.rows:
            self.look(row, names[row.slot])
        tokens = super().run(plan).tokens
        for row, spoiled in zip(plan.rows, asked, strict=True):
            if spoiled:
                self.write_garbage(row)
        answers = zip(tokens, asked, strict=True)
        return StepResult(tokens=tuple(NOT_SAMPLED if bad else token for token, bad in answers))

    def look(self, row: Row, namespace: str) -> None:
        """Who writes a page's first position owns it; all pages of a row are its namespace's."""
        size, end = self.limits.page_size, row.start + len(row.tokens)
        assert len(row.tokens) <= self.limits.chunk
        pages = self.tables[row.slot][: -(-end // size)]
        for page in pages[-(-row.start // size) :]:
            self.owner[page] = namespace
        assert all(self.owner[page] == namespace for page in pages), "KV of another namespace"

    def fail(self, plan: StepPlan, *, reached: bool) -> None:
        """The step failed: before the device saw it, or after it wrote something."""
        if reached:
            self.apply(plan)
            for row in plan.rows:
                self.write_garbage(row)

    def write_garbage(self, row: Row) -> None:
        """What these positions hold must never be read."""
        for position in range(row.start, row.start + len(row.tokens)):
            page, offset = self.place(row.slot, position)
            self.memory[page][offset] = None


class Life:
    """Applies events. An AssertionError, or whatever the scheduler raises, is what it found.

    alive: requests that were taken and have not ended. ended: those that ended well, in order.
    due: why an alive request has to end otherwise, where something happened to it.
    came, started: when by the clock, which tests move.
    """

    def __init__(self, world: World, make: Callable[..., Scheduler] = Scheduler) -> None:
        self.world = world
        self.now = 0.0
        options = structs.asdict(world.options)
        self.session = Session(world.limits, make=make, clock=lambda: self.now, **options)
        self.scheduler = self.session.scheduler
        self.session.runner = LifeRunner(world.limits, self._namespaces)
        self.alive: set[str] = set()
        self.ended: list[str] = []
        self.due: dict[str, FinishReason | str] = {}
        self.right: dict[str, tuple[list[int], FinishReason]] = {}
        self.came: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.events = self.steps = self.answered = 0
        self.flight: StepPlan | None = None
        self.seen: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Let one event happen, then look through the books."""
        self.events += 1
        with bounded():
            getattr(self, event.kind)(event)
        found = self.scheduler.check()
        assert not found, "; ".join(found)

    def drain(self) -> None:
        """Let everything end; then nothing is held and the cache can be emptied."""
        while self.scheduler.has_work():
            self.apply(Event("commit" if self.flight else "plan"))
        assert not self.alive
        self.session.assert_nothing_held()
        self._assert_counters()
        assert self.scheduler.flush_cache()
        assert self.scheduler.stats().pages_free == self.world.limits.pages

    def add(self, event: Event) -> None:
        request = event.request
        why = self._refusal(request)
        try:
            self.scheduler.add(request)
        except RequestRefused as error:
            assert type(error) is why, error
            self.seen["refused"] += 1
            return
        assert why is None, "what cannot run was taken"
        self.session.requests[request.id] = request
        self.alive.add(request.id)
        self.came[request.id] = self.now
        self.right[request.id] = expected(request, self.world.limits.context_length)

    def again(self, event: Event) -> None:
        """The id of a request that waits or runs comes a second time."""
        self.collect(event)
        if event.name in self.alive:
            self.add(event)

    def abort(self, event: Event) -> None:
        name = event.name
        if self.scheduler.abort(name):
            assert name in self.alive
            self.seen["abort in flight" if self.flight else "abort"] += 1
            self.due[name] = FinishReason.ABORT
        else:  # it ended before, and its last output may wait in the outbox
            self.collect(event)
            assert name not in self.alive

    def plan(self, event: Event) -> None:
        if self.flight is not None:
            return
        had_work, overdue = bool(self.alive - self.due.keys()), self._overdue()
        self.flight = self.scheduler.plan()
        self.collect(event)
        assert not overdue & self.alive, "a time-out was forgotten"
        for name in self._slots().keys() - self.started.keys():
            self.started[name] = self.now
        if self.flight is None:
            assert not self.alive, "nothing is planned although some wait"
            assert not self.scheduler.has_work(), "there is work that nobody asked for"
            return
        assert had_work and self.flight.step == self.steps + 1
        self.steps += 1
        # All that run may have to be computed anew, one token a step, before one gets a token.
        most = 2 * self.world.limits.max_running * self.world.limits.context_length
        assert self.steps - self.answered <= most, f"{most} steps without any output"

    def commit(self, event: Event) -> None:
        if self.flight is not None:
            result = self.session.runner.run(self.flight)
            self._take(self.scheduler.commit(self._land(), result, event.seconds))

    def spoil(self, event: Event) -> None:
        """Some rows of the step have no token to choose from."""
        if self.flight is None:
            return
        runner, rows = self.session.runner, self.flight.rows
        runner.spoiled = frozenset(at % len(rows) for at in event.rows)
        hit = [row.slot for at, row in enumerate(rows) if at in runner.spoiled and row.sample]
        for name, slot in self._slots().items():
            if slot in hit:
                self.due[name] = NOT_NUMBERS
                self.seen["not numbers"] += 1
        self.commit(event)
        runner.spoiled = frozenset()

    def fail(self, event: Event) -> None:
        if self.flight is None:
            return
        slots = {row.slot for row in self.flight.rows}
        for name, slot in self._slots().items():
            if slot in slots:
                self.due.setdefault(name, FAILED)
                self.seen["failed"] += 1
        self.session.runner.fail(self.flight, reached=event.reached)
        self._take(self.scheduler.fail(self._land(), FAILED))

    def mismatch(self, event: Event) -> None:
        """A result that does not answer the plan is refused and changes nothing."""
        if self.flight is None:
            return
        wrong = StepResult(tokens=(1,) * (len(self.flight.rows) + 1))
        try:
            self.scheduler.commit(self.flight, wrong)
        except ValueError:
            self.seen["mismatch"] += 1
        else:
            raise AssertionError("a result with too many tokens was taken")

    def flush(self, event: Event) -> None:
        self.collect(event)
        idle = not self.alive
        assert self.scheduler.flush_cache() == idle
        self.seen["flush"] += idle

    def wait(self, event: Event) -> None:
        self.now += event.seconds

    def collect(self, event: Event) -> None:
        self._take(self.scheduler.take_outputs())

    def _land(self) -> StepPlan:
        plan, self.flight = self.flight, None
        return plan

    def _take(self, outputs: list[StepOutput]) -> None:
        self.session.take(outputs)
        self.answered = self.steps if outputs else self.answered
        for output in outputs:
            name = output.request_id
            assert name in self.alive
            tokens, (right, _) = self.session.tokens[name], self.right[name]
            assert tokens == right[: len(tokens)], "wrong tokens"
            if self.due.get(name) is FinishReason.ABORT:
                assert not output.token_ids, "a token after the abort"
            if output.finish is not None:
                self._assert_end(name, output)
                self.alive.remove(name)

    def _assert_end(self, name: str, output: StepOutput) -> None:
        request, tokens = self.session.requests[name], self.session.tokens[name]
        right, finish = self.right[name]
        due = self.due.pop(name, None)
        self.seen["retracted"] += output.retractions
        self.seen["cached"] += output.cached_tokens
        assert output.cached_tokens < len(request.prompt)
        if due is FinishReason.ABORT:
            assert output.finish is FinishReason.ABORT
        elif due is not None:
            assert (output.finish, output.error) == (FinishReason.ERROR, due)
        elif output.failure is not Failure.INTERNAL:
            self._assert_overdue(name, output)
        elif output.finish is FinishReason.ERROR:
            assert len(request.prompt) + len(tokens) > self.world.positions, output.error
            self.seen["out of memory"] += 1
        else:
            assert (tokens, output.finish) == (right, finish)
            self.seen[finish.value] += 1
            self.ended.append(name)

    def _overdue(self) -> set[str]:
        """Whom the next plan has to end, for certain."""
        options, by_id = self.world.options, self.scheduler._state.by_id
        found = set()
        for name in self.alive & by_id.keys():
            began = self.started.get(name, self.now)
            waits = not by_id[name].admitted
            limit = options.waiting_timeout_s if waits else options.running_timeout_s
            if limit is not None and self.now - (self.came[name] if waits else began) > limit:
                found.add(name)
        return found

    def _assert_overdue(self, name: str, output: StepOutput) -> None:
        """It was time. One that waited for too long had no token."""
        waited = output.failure is Failure.WAITED_TOO_LONG
        options = self.world.options
        limit = options.waiting_timeout_s if waited else options.running_timeout_s
        assert output.finish is FinishReason.ERROR and not output.token_ids
        assert limit is not None and self.now - self.came[name] > limit, output.error
        assert not waited or name not in self.started
        self.seen[output.failure.value] += 1

    def _refusal(self, request: Request) -> type[RequestRefused] | None:
        """How the request has to be refused, None where it has to be taken."""
        options, length = self.world.options, len(request.prompt)
        unfit = not 0 < length <= min(self.world.limits.context_length - 1, self.world.positions)
        unfit = unfit or request.params.max_tokens < 1
        if unfit or not all(0 <= token < 2**31 for token in request.prompt):
            return RequestRefused
        ignored = request.priority and "priority" not in (options.policy, options.retraction)
        if request.id in self.alive or ignored:
            return RequestRefused
        stats, most = self.scheduler.stats(), options.max_queued_tokens
        full = options.max_queued is not None and stats.queued >= options.max_queued
        many = most is not None and stats.queued_tokens + length > most
        return QueueFull if full or (many and stats.queued) else None

    def _slots(self) -> dict[str, int]:
        return {s.request.id: s.slot for s in self.scheduler._state.running()}

    def _namespaces(self) -> dict[int, str]:
        return {s.slot: s.request.namespace for s in self.scheduler._state.running()}

    def _assert_counters(self) -> None:
        stats, last = self.scheduler.stats(), self.session.last
        emitted = sum(len(tokens) for tokens in self.session.tokens.values())
        aborted = sum(o.finish is FinishReason.ABORT for o in last.values())
        assert (stats.generated_tokens, stats.aborted) == (emitted, aborted)
        assert stats.retractions == sum(o.retractions for o in last.values())
        assert stats.cached_tokens == sum(o.cached_tokens for o in last.values())
        assert stats.steps == self.steps and stats.check_violations == 0
        assert stats.timed_out == sum(o.failure is not Failure.INTERNAL for o in last.values())
        assert stats.preemptions <= stats.retractions and 0.0 <= stats.expected_output <= 1.0
        self.seen["preempted"] += stats.preemptions
        if self.world.options.hooks.force_miss or not self.world.options.radix:
            assert stats.cached_tokens == 0
        self.seen["evicted"] += stats.evicted_pages


@contextmanager
def bounded() -> Iterator[None]:
    """AssertionError out of whatever does not end."""
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(number: int, frame: object) -> None:
    raise AssertionError(f"an endless loop: {HANG_S:g} s in one event")
