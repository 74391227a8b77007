"""Fills one step: decodes first, then prefills under way, then new ones."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from anychip.plan import Row, SlotStart, StepPlan, TableChange

from .admission import admitted
from .pace import Pace
from .preemption import urgent_victims
from .retraction import gives_way, make_room_for_decodes, pages_missing
from .sequence import Sequence
from .state import TOKENS, State

FORCED_BESIDE_OTHERS = 32
"""Tokens that grammars forced which a step computes where others wait for one token each."""


class Planner:
    """One step in the making. `sequences` are those of `rows`, in their order.

    decoding: rows that compute the one token which a running answer wants, surplus ones included.
    """

    # As most steps have them, and set where one differs: a step makes a planner of its own.
    decoding = 0
    _plain = True
    _paced_budget: int | None = None  # of those that came from `_paced_from` on
    _paced_from = 0

    def __init__(self, state: State, pace: Pace) -> None:
        self.sequences: list[Sequence] = []
        self._state, self._pace = state, pace
        self._rows: list[Row] = []
        self._changes: list[TableChange] = []
        self._starts: list[SlotStart] = []
        self._score_rows = state.score_rows
        self._budget = self._forced_budget = state.limits.step_tokens

    def fill(self, step: int) -> StepPlan | None:
        """Return the plan, or None where nothing can run. No step is in flight."""
        state = self._state
        make_room_for_decodes(state)
        for victim in urgent_victims(state):
            state.counters.preemptions += 1
            state.retract(victim)
        self._decode(state.decoding.values())
        if state.prefilling or state.queue:
            self._limit_prefill()
            self._prefill()
        # No row although some wait: only prefills run and none of them gets a page. One gives
        # way at a time; the last one alone always fits, or is told that it never will.
        while not self._rows and (state.prefilling or state.queue):
            if state.prefilling:
                state.retract(gives_way(state, state.prefilling.values()))
            self._prefill()
        return self._plan(step)

    def fill_ahead(self, step: int) -> StepPlan | None:
        """Return the plan behind a step in flight.

        None where that has to land first: because someone has to give way, nothing can run, or a
        grammar may force tokens behind the one that is being sampled, or has.
        """
        state = self._state
        jumps, longest = state.options.jump_forward, state.limits.context_length
        decoding, at_page_end, size = [], 0, state.limits.page_size
        for sequence in state.running():
            if jumps and sequence.may_jump and sequence.pending:
                return None
            left = len(sequence.tokens) + sequence.pending - sequence.computed - sequence.ahead
            if left == 1:
                if sequence.remaining(longest) > sequence.pending:
                    decoding.append(sequence)
                    at_page_end += sequence.planned == len(sequence.pages) * size
            elif sequence.request.id in state.decoding:
                return None  # it has forced tokens, which would wait for ever
        if at_page_end and at_page_end > state.store.available:
            return None
        if state.preempts and urgent_victims(state):
            return None
        self._decode(decoding)
        if state.prefilling or state.queue:
            self._limit_prefill()
            self._prefill()
        return self._plan(step)

    def _plan(self, step: int) -> StepPlan | None:
        if not self._rows:
            return None
        if self._state.store.snapshots is not None:
            self._state.store.snapshots.end_plan()
        return StepPlan(
            step=step,
            rows=tuple(self._rows),
            decoding=self.decoding,
            changes=tuple(self._changes),
            moves=self._state.store.take_moves(),
            starts=tuple(self._starts),
            plain=self._plain,
        )

    def _decode(self, sequences: Collection[Sequence]) -> None:
        self.decoding += len(sequences)
        recurrent, may_jump = self._state.limits.recurrent, []
        for sequence in sequences:
            if sequence.is_plain and not recurrent:
                self._go_on(sequence)
            elif sequence.may_jump:
                may_jump.append(sequence)
            else:
                self._add(sequence, 1)
        if may_jump and any(s.left == 1 for s in sequences):
            self._forced_budget = FORCED_BESIDE_OTHERS
        while may_jump:
            sequence = may_jump.pop()
            self._add(sequence, self._forced_size(sequence, may_jump))

    def _forced_size(self, sequence: Sequence, others: list[Sequence]) -> int:
        """Return how many forced tokens it can compute, and leave one to each of the others."""
        store, limits = self._state.store, self._state.limits
        pages = len(sequence.pages) + store.available - pages_missing(self._state, others)
        room = pages * limits.page_size - sequence.planned
        most = min(sequence.left, self._budget - len(others), limits.chunk, room)
        size = min(most, 1 + self._forced_budget)
        self._forced_budget -= size - 1
        return size

    def _prefill(self) -> None:
        for sequence in self._state.prefilling.values():
            self._add_chunk(sequence)
        if self._is_full():
            self._state.waits_for = TOKENS
            return
        for started in admitted(self._state):
            self._add_chunk(started)
            if self._is_full():
                self._state.waits_for = TOKENS
                return

    def _is_full(self) -> bool:
        return self._budget <= 0 or self._paced_budget == 0

    def _limit_prefill(self) -> None:
        """Leave to prompts what may share this step with those that decoded when they came.

        Requests that came together share alike: a burst is not held back by its own first.
        """
        state = self._state
        paced_for = [s.decodes_since for s in state.decoding.values() if s.decodes_since >= 0]
        if not paced_for:
            return
        self._paced_from = oldest = min(paced_for)
        later = [s.arrival for s in state.prefilling.values() if s.arrival >= oldest]
        if not state.admission_blocked:
            later += state.queue.arrivals_from(oldest, len(state.free_slots))
        if later:
            first = min(later)
            before = sum(since <= first for since in paced_for)
            self._paced_budget = self._pace.prefill_tokens(before, len(later))

    def _add_chunk(self, sequence: Sequence) -> None:
        store, limits = self._state.store, self._state.limits
        room = (len(sequence.pages) + store.available) * limits.page_size - sequence.planned
        left = len(sequence.tokens) - sequence.planned
        size = sequence.within(min(limits.chunk, self._budget, left, room), self._score_rows)
        if store.snapshots is not None:
            size = min(size, store.snapshots.next_stop(sequence) - sequence.planned)
        if self._paced_budget is not None and sequence.arrival >= self._paced_from:
            size = min(size, self._paced_budget)
            self._paced_budget -= max(size, 0)
        if size > 0:
            row = self._add(sequence, size)
            self._score_rows -= row.logit_rows - row.sample

    def _go_on(self, sequence: Sequence) -> None:
        """`_add` of one token to most rows: an answer of which nothing else is wanted."""
        store = self._state.store
        if sequence.computed + sequence.ahead == len(sequence.pages) * store.page_size:
            sequence.pages += store.take(1)
        if sequence.dirty_from < len(sequence.pages):
            self._changes.append(self._state.tell_table(sequence))
        self._rows.append(sequence.next_row())
        self.sequences.append(sequence)
        self._budget -= 1

    def _add(self, sequence: Sequence, count: int) -> Row:
        end, store = sequence.computed + sequence.ahead + count, self._state.store
        if end > len(sequence.pages) * store.page_size:
            sequence.pages += store.take(store.pages_for(end) - len(sequence.pages))
        # Only a row carries its slot's changes: where the step fails, every sequence whose
        # table the runner may have missed ends with it.
        if sequence.dirty_from < len(sequence.pages):
            self._changes.append(self._state.tell_table(sequence))
        if sequence.start_due:
            self._starts.append(sequence.begin())
        row = sequence.row(count)
        if self._state.limits.recurrent:
            row = self._with_state(sequence, row)
        sequence.take_off(row)
        self._plain = self._plain and count == 1 and row.sample and sequence.is_plain
        self._rows.append(row)
        self.sequences.append(sequence)
        self._budget -= count
        return row

    def _with_state(self, sequence: Sequence, row: Row) -> Row:
        """The row with the slots of its recurrent state."""
        source = target = 1 + sequence.slot
        if self._state.store.snapshots is not None:
            end = row.start + len(row.tokens)
            source, target = self._state.store.snapshots.place(sequence, end)
        return msgspec.structs.replace(row, state_from=source, state_to=target)
