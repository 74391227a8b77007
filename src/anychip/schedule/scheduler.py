"""The scheduler's verbs: add, abort, plan, commit. Everything here is plain integers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from anychip.plan import NOT_SAMPLED, CacheLimits, Row, SchedulerStats, StepPlan, StepResult
from anychip.request import Failure, FinishReason, Request, StepOutput

from .deadlines import end_overdue, someone_is_overdue
from .hooks import SchedulerHooks
from .host_tier import HostTier
from .invariants import violations
from .options import DEFAULT_OPTIONS, SchedulerOptions
from .pace import Pace
from .planner import Planner
from .refusal import (
    TOKEN_IDS,
    QueueFull,
    RequestRefused,
    refuse_full,
    refuse_limits,
    refuse_options,
    refuse_unfit,
)
from .retraction import force_retraction, retraction_is_forced
from .sequence import Sequence
from .snapshots import Snapshots
from .state import Produced, State

NOT_NUMBERS = (
    "the model's logits are not numbers (NaN): its weights are damaged, or the chip's arithmetic "
    "is at fault; try --dtype float32, compare another --backend, fetch the model again, or see "
    "with 'anychip coverage' who computes each operator and choose another with --op"
)

RETRY_EVERY = 16
"""Steps after which those that wait are tried again, whatever happened: expectations change."""

__all__ = ["QueueFull", "RequestRefused", "Scheduler", "SchedulerHooks", "SchedulerOptions"]


class _Flight(msgspec.Struct, frozen=True):
    """A step between its plan and its commit, whose rows it has, and how many of them decode."""

    plan: StepPlan
    sequences: list[Sequence]
    decoding: int


class Scheduler:
    """Decides what every step computes: plan, run it, commit, again.

    With `plan_ahead` a second step may be in flight, behind the first: steps land in order. Called
    from one thread. clock: seconds that time-outs are counted in; it never goes back.
    """

    def __init__(
        self,
        limits: CacheLimits,
        eos_ids: frozenset[int],
        options: SchedulerOptions = DEFAULT_OPTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        refuse_limits(limits)
        refuse_options(options)
        self._state = State(limits, options)
        self._pace = Pace(options.target_tpot_s)
        self._clock = clock
        self._eos_ids = eos_ids
        self._flights: deque[_Flight] = deque()
        self._aborting = False  # some running request is to end with the step in flight

    def add(self, request: Request) -> None:
        """Queue a request. RequestRefused (QueueFull where it is only too many) changes nothing."""
        self.refuse(request)
        state = self._state
        sequence = Sequence(request, state.arrivals, self._clock())
        state.arrivals += 1
        state.by_id[request.id] = sequence
        state.wait(sequence)

    def refuse(self, request: Request) -> None:
        """RequestRefused where `add` would not take it now; nothing else is done."""
        state = self._state
        if request.id in state.by_id:
            raise RequestRefused(f"request id {request.id!r} is in use; choose another")
        refuse_unfit(request, state.limits, state.options)
        refuse_full(request, state.queue, state.options)

    def abort(self, request_id: str) -> bool:
        """End a request by its exact id; False where there is none.

        A running one ends at once, or with the next commit where a step is in flight; it gets no
        token after this call. Its last output comes with the next `commit` or `take_outputs`.
        """
        sequence = self._state.by_id.get(request_id)
        if sequence is None:
            return False
        if self._flights and sequence.slot >= 0:
            sequence.aborted = self._aborting = True
        else:
            self._state.end(sequence, FinishReason.ABORT)
        return True

    def plan(self) -> StepPlan | None:
        """Return the next step, to be run and then given to `commit` or `fail`; None if idle.

        RuntimeError where the step before is still in flight.
        """
        if self._flights:
            raise RuntimeError(f"step {self._flights[0].plan.step} is in flight; commit it first")
        self._begin_step()
        planner = Planner(self._state, self._pace)
        return self._take_off(planner, planner.fill(self._state.counters.steps + 1))

    def plan_ahead(self) -> StepPlan | None:
        """Return the step behind the one in flight; its rows may ask for PREV.

        None where that one has to be committed before anything is planned. A request that turns
        out to end with the step in flight has a surplus row in this one; its token is dropped.
        RuntimeError where not exactly one step is in flight.
        """
        if len(self._flights) != 1:
            raise RuntimeError(f"{len(self._flights)} steps are in flight; one has to be")
        state = self._state
        state.now = self._clock()
        if state.hooks.force_retract_every and retraction_is_forced(state):
            return None
        if state.has_deadlines and someone_is_overdue(state, state.options, state.now):
            return None
        if self._flights[0].plan.moves:  # where it fails nothing that is cached can be trusted
            return None
        if state.beginners:
            state.settle_beginners()
        if state.admission_blocked:
            self._retry_those_that_wait()
        planner = Planner(state, self._pace)
        return self._take_off(planner, planner.fill_ahead(state.counters.steps + 1))

    def commit(
        self, plan: StepPlan, result: StepResult, seconds: float | None = None
    ) -> list[StepOutput]:
        """Take in what the step sampled and return all outputs since the last time.

        seconds: what the step took, where it should count for how steps are filled.
        A row that asked for a token and got NOT_SAMPLED had none to choose: its request ends.
        ValueError, with nothing changed, for a result that does not answer the plan.
        """
        flight = self._landing(plan)
        _refuse_mismatch(plan, result)
        self._flights.popleft()
        state, decoding = self._state, flight.decoding
        if seconds is not None:
            tokens = len(plan.rows) if plan.plain else plan.token_count
            self._pace.measured(decoding, tokens - decoding, seconds)
        if decoding:
            state.estimate.stepped()
        for index, sequence in enumerate(flight.sequences):
            # Most rows: a running answer has one token more, and nothing else is told of it.
            if plan.plain and state.decoding.get(sequence.request.id) is sequence:
                token = result.tokens[index]
                if token != NOT_SAMPLED and not (sequence.aborted or result.errors):
                    self._go_on(sequence, token)
                    continue
            self._land(sequence, plan.rows[index], index, result)
        if self._aborting:
            self._end_aborted()
        outputs, state.outbox = state.outbox, []
        return outputs

    def fail(self, plan: StepPlan, message: str) -> list[StepOutput]:
        """End every request of a step that failed; the others go on. Nothing it wrote is cached.

        Where it moved pages nobody knows which moves were done: then nothing that is cached stays.
        """
        flight = self._landing(plan)
        self._flights.popleft()
        self._end_aborted()
        for sequence in flight.sequences:
            if self._state.by_id.get(sequence.request.id) is sequence:
                self._state.end(sequence, FinishReason.ERROR, error=message)
        if plan.moves:
            self._state.distrust_cache()
        return self.take_outputs()

    def take_outputs(self) -> list[StepOutput]:
        """Return and forget the outputs that came about without a step."""
        outputs, self._state.outbox = self._state.outbox, []
        return outputs

    def has_work(self) -> bool:
        """Say whether anything runs, waits, is in flight, or waits to be taken out."""
        return bool(self._state.by_id or self._state.outbox or self._flights)

    def place_of(self, request_id: str) -> tuple[int, int] | None:
        """Return a request's slot (-1: it waits) and retractions; None where there is none."""
        sequence = self._state.by_id.get(request_id)
        return None if sequence is None else (sequence.slot, sequence.retractions)

    def flush_cache(self) -> bool:
        """Free every cached page; False, with nothing done, while any request runs or waits."""
        if self._state.by_id:
            return False
        self._state.store.flush()
        return True

    def stats(self) -> SchedulerStats:
        """Return a snapshot; costs nothing that grows with the cache."""
        state = self._state
        free, cached = state.store.allocator.free_count, state.store.evictable
        return SchedulerStats(
            running=len(state.decoding) + len(state.prefilling),
            queued=len(state.queue),
            queued_tokens=state.queue.tokens,
            expected_output=state.estimate.share,
            pages_total=state.limits.pages,
            pages_free=free,
            pages_cached=cached,
            pages_held=state.limits.pages - free - cached,
            evicted_pages=state.store.evicted,
            **_tier_stats(state.store.tier),
            **_snapshot_stats(state.store.snapshots),
            **msgspec.structs.asdict(state.counters),
        )

    def waiting(self) -> dict[str, int]:
        """Return how many requests wait, by what they wait for; looks at each of them."""
        return self._state.waiting()

    def tokens_in_flight(self) -> int:
        """Return the positions that running requests have in the cache."""
        return sum(sequence.computed for sequence in self._state.running())

    def check(self) -> list[str]:
        """Return what is wrong with the books, nothing where they are sound; counts it too."""
        found = violations(self._state)
        self._state.counters.check_violations += len(found)
        return found

    def _landing(self, plan: StepPlan) -> _Flight:
        if not self._flights or self._flights[0].plan.step != plan.step:
            raise ValueError(f"step {plan.step} is not the oldest in flight")
        return self._flights[0]

    def _take_off(self, planner: Planner, plan: StepPlan | None) -> StepPlan | None:
        if plan is not None:
            self._state.counters.steps = plan.step
            self._flights.append(_Flight(plan, planner.sequences, planner.decoding))
        return plan

    def _go_on(self, sequence: Sequence, token: int) -> None:
        """A running answer has one token more."""
        finish = sequence.take(token, self._eos_ids, self._state.limits.context_length)
        if finish is None:
            self._state.emit_token(sequence, token)
        else:
            self._state.end(sequence, finish, produced=Produced((token,)))

    def _land(self, sequence: Sequence, row: Row, index: int, result: StepResult) -> None:
        if self._state.by_id.get(sequence.request.id) is not sequence:
            return  # it ended with the step before, this one was surplus
        sequence.land(row)
        if index in result.errors:
            self._end_impossible(sequence, result.errors[index])
        elif row.sample and result.tokens[index] == NOT_SAMPLED:
            self._state.end_spoiled(sequence, NOT_NUMBERS)
        elif not sequence.aborted:
            self._advance(sequence, row, index, result)

    def _advance(self, sequence: Sequence, row: Row, index: int, result: StepResult) -> None:
        state = self._state
        prefills = sequence.request.id in state.prefilling
        if prefills:
            state.share(sequence)
        scores = result.scores.get(index, ())
        if not row.sample:
            if scores:
                state.emit(sequence, Produced(prompt_logprobs=scores))
            return
        tokens, finish = self._append(sequence, index, result)
        logprobs = (result.logprobs[index],) if index in result.logprobs else ()
        produced = Produced(tokens, logprobs, scores)
        if finish is not None:
            state.end(sequence, finish, produced=produced)
            return
        state.emit(sequence, produced)
        if prefills:
            state.decode(sequence)

    def _end_impossible(self, sequence: Sequence, error: str) -> None:
        """Its own grammar or bans leave nothing to say; its KV is sound."""
        self._state.end(sequence, FinishReason.ERROR, error=error, failure=Failure.IMPOSSIBLE)

    def _append(
        self, sequence: Sequence, index: int, result: StepResult
    ) -> tuple[tuple[int, ...], FinishReason | None]:
        """Add the sampled token, and those forced behind it, up to one that ends the answer."""
        tokens: tuple[int, ...] = (result.tokens[index],)
        if index in result.forced:
            tokens += result.forced[index]
        for count, token in enumerate(tokens, 1):
            sequence.tokens.append(token)
            finish = sequence.end_after(token, self._eos_ids, self._state.limits.context_length)
            if finish is not None:
                return tokens[:count], finish
        return tokens, None

    def _begin_step(self) -> None:
        state = self._state
        state.now = self._clock()
        if not state.by_id:
            return
        if state.beginners:
            state.settle_beginners()
        end_overdue(state, state.options, state.now)
        if state.hooks.force_retract_every:
            force_retraction(state)
        if state.admission_blocked:
            self._retry_those_that_wait()

    def _retry_those_that_wait(self) -> None:
        if self._state.counters.steps % RETRY_EVERY == 0:
            self._state.admission_blocked = False

    def _end_aborted(self) -> None:
        for sequence in self._state.running():
            if sequence.aborted:
                self._state.end(sequence, FinishReason.ABORT)
        # One that was retracted meanwhile ends when it runs again.
        self._aborting = any(sequence.aborted for sequence in self._state.by_id.values())


def _tier_stats(tier: HostTier | None) -> dict[str, int]:
    if tier is None:
        return {}
    return {
        "host_slots_total": tier.slots.total,
        "host_slots_free": tier.slots.free_count,
        "host_saved_pages": tier.saved,
        "host_loaded_pages": tier.loaded,
    }


def _snapshot_stats(snapshots: Snapshots | None) -> dict[str, int]:
    if snapshots is None:
        return {}
    return {
        "snapshots_total": snapshots.total,
        "snapshots_free": snapshots.free_count,
        "snapshots_taken": snapshots.taken,
        "snapshots_evicted": snapshots.evicted,
    }


def _refuse_mismatch(plan: StepPlan, result: StepResult) -> None:
    if len(result.tokens) != len(plan.rows):
        raise ValueError(
            f"step {plan.step} has {len(plan.rows)} rows, the result {len(result.tokens)} tokens"
        )
    least, most = min(result.tokens), max(result.tokens)
    if plan.plain and not result.forced and least >= NOT_SAMPLED and most < TOKEN_IDS:
        return
    for index, (row, token) in enumerate(zip(plan.rows, result.tokens, strict=True)):
        if index in result.forced and not row.sample:
            raise ValueError(
                f"step {plan.step}: row {index} asked for no token and got forced ones"
            )
        if row.sample and token != NOT_SAMPLED and not 0 <= token < TOKEN_IDS:
            raise ValueError(f"step {plan.step}: row {index} asked for a token and got {token}")
