"""One scheduler's life: events happen to it, and all that it says is held against a reference.

Beyond what `table_model` notices: the pages of a request hold KV of its own namespace alone;
nothing that a failed or spoiled step wrote is ever read; each request that was taken ends once,
with the reason that is due and with tokens that begin the reference's answer; one that an abort
reached gets no token after it; what is refused is what cannot run.
"""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from msgspec import structs
from random_life import Event, World
from table_model import Session, TableRunner, expected, expected_logprobs, expected_scores

from anychip.plan import NOT_SAMPLED, CacheLimits, Row, StepPlan, StepResult
from anychip.request import Failure, FinishReason, Request, StepOutput
from anychip.schedule.scheduler import NOT_NUMBERS, QueueFull, RequestRefused, Scheduler
from anychip.schedule.sequence import Sequence

FAILED = "the chip said no"
RULED_OUT = "no token may follow"
HANG_S = 5.0
OVERDUE = (Failure.WAITED_TOO_LONG, Failure.RAN_TOO_LONG)
"""An event takes a millisecond; one that takes so long is taken for an endless loop."""


class Step(NamedTuple):
    """One step in flight. result: where the runner is ahead of its landing."""

    plan: StepPlan
    sequences: list[Sequence]
    result: StepResult | None


class LifeRunner(TableRunner):
    """The table model with namespaces, and with rows whose KV nobody may ever read."""

    def __init__(self, limits: CacheLimits, *, jump: bool = True) -> None:
        super().__init__(limits, jump=jump)
        self.owner: dict[int, str] = {}
        self.host_owner: dict[int, str] = {}

    def look(self, plan: StepPlan, sequences: list[Sequence], lost: frozenset[int]) -> None:
        """Who writes a page's first position owns it; all pages of a row are its namespace's."""
        size = self.limits.page_size
        self.apply(plan, lost)
        for move in plan.moves:
            if move.to_host:
                self.host_owner[move.slot] = self.owner[move.page]
            else:
                self.owner[move.page] = self.host_owner[move.slot]
        for row, sequence in zip(plan.rows, sequences, strict=True):
            if row.slot in lost:
                continue
            namespace, end = sequence.request.namespace, row.start + len(row.tokens)
            assert len(row.tokens) <= self.limits.chunk
            pages = self.tables[row.slot][: -(-end // size)]
            for page in pages[-(-row.start // size) :]:
                self.owner[page] = namespace
            assert all(self.owner[page] == namespace for page in pages), "KV of another namespace"

    def write_garbage(self, row: Row) -> None:
        """What these positions hold must never be read."""
        for position in range(row.start, row.start + len(row.tokens)):
            page, offset = self.place(row.slot, position)
            self.memory[page][offset] = self.states[row.state_to] = None


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
        self.runner = LifeRunner(world.limits, jump=world.options.jump_forward)
        self.alive: set[str] = set()
        self.ended: list[str] = []
        self.due: dict[str, FinishReason | str] = {}
        self.right: dict[str, tuple[list[int], FinishReason]] = {}
        self.came: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.events = self.steps = self.answered = 0
        self.flights: deque[Step] = deque()
        self.lost: frozenset[int] = frozenset()
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
            self.apply(Event("commit" if self.flights else "plan"))
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
        context, jump = self.world.limits.context_length, self.world.options.jump_forward
        self.right[request.id] = expected(request, context, jump=jump)

    def again(self, event: Event) -> None:
        """The id of a request that waits or runs comes a second time."""
        self.collect(event)
        if event.name in self.alive:
            self.add(event)

    def abort(self, event: Event) -> None:
        name = event.name
        if self.scheduler.abort(name):
            assert name in self.alive
            self.seen["abort in flight" if self.flights else "abort"] += 1
            self.due[name] = FinishReason.ABORT
        else:  # it ended before, and its last output may wait in the outbox
            self.collect(event)
            assert name not in self.alive

    def plan(self, event: Event) -> None:
        if self.flights:
            return
        had_work, overdue = bool(self.alive - self.due.keys()), self._overdue()
        plan = self.scheduler.plan()
        self.collect(event)
        assert not overdue & self.alive, "a time-out was forgotten"
        if plan is not None:
            assert had_work
            self._take_off(plan)
            return
        assert not self.alive, "nothing is planned although some wait"
        assert not self.scheduler.has_work(), "there is work that nobody asked for"

    def ahead(self, event: Event) -> None:
        """Plan a step behind the one in flight, where that can be."""
        if len(self.flights) != 1 or not self.world.overlap:
            return
        plan = self.scheduler.plan_ahead()
        if plan is not None:
            self._take_off(plan)
            self.seen["ahead"] += 1

    def _take_off(self, plan: StepPlan) -> None:
        assert plan.step == self.steps + 1
        self.steps += 1
        for sequence in self.scheduler._state.running():
            self.started.setdefault(sequence.request.id, self.now)
        # All that run may have to be computed anew, one token a step, before one gets a token.
        most = 2 * self.world.limits.max_running * self.world.limits.context_length
        assert self.steps - self.answered <= most, f"{most} steps without any output"
        step = Step(plan, self.scheduler._flights[-1].sequences, None)
        result = self._run(step) if self.world.overlap != "lazy" else None
        self.flights.append(step._replace(result=result))

    def _run(self, step: Step) -> StepResult:
        lost, self.lost = self.lost, frozenset()
        self.runner.look(step.plan, step.sequences, lost)
        return self.runner.run(step.plan, lost)

    def commit(self, event: Event) -> None:
        """The oldest step lands. `rows` that sample have no token to choose from."""
        if not self.flights:
            return
        step = self.flights.popleft()
        result = step.result or self._run(step)
        tokens, spoiled = list(result.tokens), set()
        for at in {at % len(tokens) for at in event.rows}:
            row, sequence = step.plan.rows[at], step.sequences[at]
            if row.sample and self._lives(sequence):
                tokens[at] = NOT_SAMPLED
                self.runner.write_garbage(row)
                self.due[sequence.request.id] = NOT_NUMBERS
                self.seen["not numbers"] += 1
                spoiled.add(row.slot)
        self._lose(spoiled)
        result = structs.replace(result, tokens=tuple(tokens))
        self._take(self.scheduler.commit(step.plan, result, event.seconds))

    def spoil(self, event: Event) -> None:
        self.commit(event)

    def rule_out(self, event: Event) -> None:
        """The oldest step lands, and some of its requests cannot go on."""
        if not self.flights:
            return
        step = self.flights.popleft()
        result, errors = step.result or self._run(step), {}
        for at in {at % len(result.tokens) for at in event.rows}:
            sequence = step.sequences[at]
            if self._lives(sequence):
                errors[at] = self.due[sequence.request.id] = RULED_OUT
                self.seen["ruled out"] += 1
        self._lose({step.plan.rows[at].slot for at in errors})
        self._take(self.scheduler.commit(step.plan, structs.replace(result, errors=errors)))

    def fail(self, event: Event) -> None:
        """The oldest step fails: before the device saw it, or after it wrote something."""
        if not self.flights:
            return
        step = self.flights.popleft()
        if event.reached and step.result is None:
            self.runner.apply(step.plan, self.lost)
        slots = set()
        for row, sequence in zip(step.plan.rows, step.sequences, strict=True):
            if self._lives(sequence):
                self.due.setdefault(sequence.request.id, FAILED)
                self.seen["failed"] += 1
                slots.add(row.slot)
                if event.reached or step.result is not None:
                    self.runner.write_garbage(row)
        self._lose(slots)
        self._take(self.scheduler.fail(step.plan, FAILED))

    def _lives(self, sequence: Sequence) -> bool:
        return self.scheduler._state.by_id.get(sequence.request.id) is sequence

    def _lose(self, slots: set[int]) -> None:
        """A step behind this one that is not run yet has rows that follow on what is no more."""
        waits = bool(self.flights) and self.flights[0].result is None
        self.lost = frozenset(slots) if waits else frozenset()

    def mismatch(self, event: Event) -> None:
        """A result that does not answer the plan is refused and changes nothing."""
        if not self.flights:
            return
        plan = self.flights[0].plan
        wrong = StepResult(tokens=(1,) * (len(plan.rows) + 1))
        try:
            self.scheduler.commit(plan, wrong)
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
            jumped = len(output.token_ids) > 1
            assert not jumped or self.session.requests[name].params.grammar
            self.seen["forced"] += jumped
            self.seen["scored"] += len(output.prompt_logprobs)
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
        params, length = request.params, len(request.prompt)
        if params.prompt_logprobs >= 0 and params.prompt_logprobs_from < length:
            assert output.cached_tokens < params.prompt_logprobs_from
        self._assert_told(request, tokens, whole=due is None and output.error is None)
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

    def _assert_told(self, request: Request, tokens: list[int], *, whole: bool) -> None:
        """Probabilities of the tokens, and of the prompt; of a part where it did not end well."""
        session = self.session
        assert session.logprobs[request.id] == expected_logprobs(request, tokens)
        scores, right = session.scores[request.id], expected_scores(request)
        assert scores == (right if whole or tokens else right[: len(scores)]), "wrong scores"

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
        since = self.came[name] if waited else self.started[name]
        assert limit is not None and self.now - since > limit, output.error
        assert not waited or name not in self.started
        self.seen[output.failure.value] += 1

    def _refusal(self, request: Request) -> type[RequestRefused] | None:
        """How the request has to be refused, None where it has to be taken."""
        options, length = self.world.options, len(request.prompt)
        unfit = not 0 < length <= min(self.world.limits.context_length - 1, self.world.positions)
        unfit = unfit or request.params.max_tokens < 1
        if unfit or not all(0 <= token < 2**31 for token in request.prompt):
            return RequestRefused
        ignored = request.priority and "priority" not in (
            options.policy,
            options.retraction,
            options.eviction,
        )
        if request.id in self.alive or ignored:
            return RequestRefused
        stats, most = self.scheduler.stats(), options.max_queued_tokens
        full = options.max_queued is not None and stats.queued >= options.max_queued
        many = most is not None and stats.queued_tokens + length > most
        return QueueFull if full or (many and stats.queued) else None

    def _assert_counters(self) -> None:
        stats, last = self.scheduler.stats(), self.session.last
        emitted = sum(len(tokens) for tokens in self.session.tokens.values())
        aborted = sum(o.finish is FinishReason.ABORT for o in last.values())
        assert (stats.generated_tokens, stats.aborted) == (emitted, aborted)
        assert stats.retractions == sum(o.retractions for o in last.values())
        assert stats.cached_tokens == sum(o.cached_tokens for o in last.values())
        assert stats.steps == self.steps and stats.check_violations == 0
        assert stats.timed_out == sum(o.failure in OVERDUE for o in last.values())
        assert stats.preemptions <= stats.retractions and 0.0 <= stats.expected_output <= 1.0
        self.seen["preempted"] += stats.preemptions
        if self.world.options.hooks.force_miss or not self.world.options.radix:
            assert stats.cached_tokens == 0
        self.seen["evicted"] += stats.evicted_pages
        self.seen["from host"] += stats.host_loaded_pages


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
