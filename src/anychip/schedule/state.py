"""Who waits, who runs and what they hold: the scheduler's data and the moves between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from anychip.plan import CacheLimits, TableChange
from anychip.request import Failure, FinishReason, StepOutput, TokenLogprob

from .estimate import OutputEstimate
from .eviction import EVICTION_POLICIES
from .options import SchedulerOptions
from .policy import POLICIES
from .sequence import Sequence
from .snapshots import Snapshots
from .store import PageStore
from .waiting import WaitingQueue


class Produced(NamedTuple):
    """What a step made for a request; see StepOutput."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


NOTHING = Produced()

SLOTS, PAGES, TOKENS, PREFIX = "slots", "pages", "tokens", "prefix"
"""What requests wait for: a slot, cache memory, a share of the step, a prefix that is computed."""


BURST_S = 0.25
"""Requests that come so soon after another's first token came together with it: a client takes a
while to send many, and a server to read them while it computes."""


class Counters(msgspec.Struct):
    """Lifetime counts for SchedulerStats."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_host: int = 0
    generated_tokens: int = 0
    retractions: int = 0
    preemptions: int = 0
    aborted: int = 0
    timed_out: int = 0
    steps: int = 0
    check_violations: int = 0


def snapshots_of(limits: CacheLimits) -> Snapshots | None:
    """Slots for snapshots of the model's recurrent state; None where it has none."""
    if not limits.recurrent:
        return None
    return Snapshots(limits.max_running, limits.snapshots, limits.snapshot_every, limits.page_size)


class State:
    """A request is in exactly one of `queue`, `prefilling`, `decoding`, and always in `by_id`.

    tables: what the plans so far said of every slot's page table.
    admission_blocked: those that wait were tried and none can start; nothing happened since that
    could change it, so they are not tried again. waits_for: what kept the first of them from
    starting when they were last tried. now: the clock's time at this step.
    has_deadlines, preempts: whether time may end a request, or a higher priority drive it out.
    arrivals: requests that came so far. beginners: those that may be part of a burst, by the time
    of their first token, in its order.
    """

    def __init__(self, limits: CacheLimits, options: SchedulerOptions) -> None:
        self.limits = limits
        self.options = options
        self.hooks = options.hooks
        keeps = options.radix and (not limits.recurrent or limits.snapshots > 0)
        self.store = PageStore(
            limits.pages,
            limits.page_size,
            radix=keeps,
            force_miss=options.hooks.force_miss,
            policy=EVICTION_POLICIES[options.eviction],
            host_slots=limits.host_slots,
            snapshots=snapshots_of(limits) if keeps else None,
        )
        self.estimate = OutputEstimate(options.conservativeness, options.headroom_tokens)
        self.now = 0.0
        self.arrivals = 0
        # Every running request may need one token of the budget: more would starve each other.
        self.slots = min(limits.max_running, limits.step_tokens)
        # And one of a step's logit rows to sample: what is left is for prompts to be scored.
        self.score_rows = max(1, limits.logit_rows - self.slots)
        self.free_slots = list(range(self.slots - 1, -1, -1))
        self.tables: list[list[int]] = [[] for _ in range(self.slots)]
        self.queue = WaitingQueue()
        self.prefilling: dict[str, Sequence] = {}
        self.decoding: dict[str, Sequence] = {}
        self.by_id: dict[str, Sequence] = {}
        self.beginners: dict[str, float] = {}
        self.outbox: list[StepOutput] = []
        self.counters = Counters()
        self.admission_blocked = False
        self.waits_for = TOKENS
        self.has_deadlines = (options.waiting_timeout_s, options.running_timeout_s) != (None, None)
        self.preempts = options.policy == "priority" and options.preempt_from is not None

    def running(self) -> list[Sequence]:
        """Return those that hold a slot."""
        return [*self.decoding.values(), *self.prefilling.values()]

    def waiting(self) -> dict[str, int]:
        """Return how many wait, by what they wait for."""
        behind = sum(sequence.follows is not None for sequence in self.queue)
        found = dict.fromkeys((SLOTS, PAGES, TOKENS, PREFIX), 0)
        found[PREFIX] = behind
        found[self.waits_for] += len(self.queue) - behind
        return found

    def order(self) -> Iterable[Sequence]:
        """Return those that wait, in the order in which they should start."""
        return POLICIES[self.options.policy](self.queue, self.store)

    def wait(self, sequence: Sequence) -> None:
        """Queue it, where its arrival belongs."""
        self.queue.add(sequence)
        self.admission_blocked = False

    def start(self, sequence: Sequence) -> None:
        """Give a slot to one that waits, whose prefix is attached already."""
        for other in self.queue.before(sequence):
            other.overtaken += 1
        self.queue.remove(sequence)
        sequence.follows = None
        sequence.slot = self.free_slots.pop()
        self.prefilling[sequence.request.id] = sequence
        from_host = self.store.load(sequence)
        if not sequence.admitted:
            sequence.admitted = True
            sequence.since = self.now
            self.store.count(sequence)
            sequence.cached_tokens = sequence.computed
            self.counters.prompt_tokens += sequence.prompt_length
            self.counters.cached_tokens += sequence.computed
            self.counters.cached_tokens_host += from_host

    def share(self, sequence: Sequence) -> None:
        """Put its computed whole pages into the prefix tree."""
        if self.store.share(sequence):
            self.admission_blocked = False

    def decode(self, sequence: Sequence) -> None:
        """Its prefill is over. Those that waited for that may start now."""
        name = sequence.request.id
        if sequence.decodes_since < 0:
            self.beginners.setdefault(name, self.now)
        self.decoding[name] = self.prefilling.pop(name)
        self.admission_blocked = False

    def settle_beginners(self) -> None:
        """What comes later than now is paced for those that have decoded for BURST_S."""
        while self.beginners:
            name, began = next(iter(self.beginners.items()))
            if self.now < began + BURST_S:
                return
            del self.beginners[name]
            self.by_id[name].decodes_since = self.arrivals

    def retract(self, sequence: Sequence) -> None:
        """Take slot and pages away and queue it again with its output kept.

        Its own pages are not cached: memory is what is missing.
        """
        self._vacate(sequence)
        sequence.retractions += 1
        self.counters.retractions += 1
        self.wait(sequence)

    def end(
        self,
        sequence: Sequence,
        finish: FinishReason,
        *,
        produced: Produced = NOTHING,
        error: str | None = None,
        failure: Failure = Failure.INTERNAL,
    ) -> None:
        """Take a request out of everything and put its last output into the outbox."""
        if sequence.slot >= 0:
            # An abort caches too: it is how a stop string ends, and the next turn comes back.
            if error is None or failure is not Failure.INTERNAL:
                self.store.share(sequence)
            self._vacate(sequence)
        else:
            self.queue.remove(sequence)
            self.admission_blocked = False
        del self.by_id[sequence.request.id]
        self.beginners.pop(sequence.request.id, None)
        self.counters.aborted += finish is FinishReason.ABORT
        self.counters.timed_out += failure in (Failure.WAITED_TOO_LONG, Failure.RAN_TOO_LONG)
        if finish is not FinishReason.ERROR and sequence.admitted:
            self.estimate.finished(sequence, self.limits.context_length)
        if not self.by_id:
            self.estimate.idle()
        self.emit(sequence, produced, finish, error, failure)

    def end_spoiled(self, sequence: Sequence, error: str) -> None:
        """End a request whose logits are NaN. Its KV may be, and the prefix that it found too.

        Nobody finds that again: what earlier chunks put into the tree is taken out.
        """
        node = sequence.node
        self.end(sequence, FinishReason.ERROR, error=error)
        self.store.drop(node)

    def distrust_cache(self) -> None:
        """Forget all that is cached; who runs starts anew. No answer changes, only the work."""
        for sequence in self.running():
            self.retract(sequence)
        self.store.flush()
        self.store.take_moves()

    def emit(
        self,
        sequence: Sequence,
        produced: Produced,
        finish: FinishReason | None = None,
        error: str | None = None,
        failure: Failure = Failure.INTERNAL,
    ) -> None:
        """Put an output into the outbox."""
        self.counters.generated_tokens += len(produced.token_ids)
        self.outbox.append(
            StepOutput(
                request_id=sequence.request.id,
                token_ids=produced.token_ids,
                finish=finish,
                cached_tokens=sequence.cached_tokens,
                retractions=sequence.retractions,
                error=error,
                failure=failure,
                logprobs=produced.logprobs,
                prompt_logprobs=produced.prompt_logprobs,
                admitted_at=sequence.since if sequence.admitted else 0.0,
            )
        )

    def emit_token(self, sequence: Sequence, token: int) -> None:
        """Put an output into the outbox that is one token of an answer that goes on."""
        self.counters.generated_tokens += 1
        self.outbox.append(
            StepOutput(
                request_id=sequence.request.id,
                token_ids=(token,),
                cached_tokens=sequence.cached_tokens,
                retractions=sequence.retractions,
                admitted_at=sequence.since,
            )
        )

    def tell_table(self, sequence: Sequence) -> TableChange:
        """Return the change that brings the slot's table up to date."""
        first = sequence.dirty_from
        change = TableChange(slot=sequence.slot, first=first, pages=tuple(sequence.pages[first:]))
        self.tables[change.slot][first : first + len(change.pages)] = change.pages
        sequence.dirty_from = len(sequence.pages)
        return change

    def _vacate(self, sequence: Sequence) -> None:
        place = self.decoding if sequence.request.id in self.decoding else self.prefilling
        del place[sequence.request.id]
        self.free_slots.append(sequence.slot)
        self.store.detach(sequence)
        self.admission_blocked = False
