"""Fills one step: decodes first, then prefills under way, then new ones."""

from __future__ import annotations

from anychip.plan import Row, StepPlan, TableChange

from .admission import admitted
from .pace import Pace
from .preemption import make_room_for_urgent
from .retraction import gives_way, make_room_for_decodes
from .sequence import Sequence
from .state import State


class Planner:
    """One step in the making. `sequences` are those of `rows`, in their order."""

    def __init__(self, state: State, pace: Pace) -> None:
        self.sequences: list[Sequence] = []
        self._state, self._pace = state, pace
        self._rows: list[Row] = []
        self._changes: list[TableChange] = []
        self._budget = state.limits.step_tokens

    def fill(self, step: int) -> StepPlan | None:
        """Return the plan, or None where nothing can run."""
        state = self._state
        make_room_for_decodes(state)
        if state.options.policy == "priority" and state.options.preempt_from is not None:
            make_room_for_urgent(state, state.options.preempt_from)
        for sequence in state.decoding.values():
            self._add(sequence, 1)
        self._limit_prefill()
        self._prefill()
        # No row although some wait: only prefills run and none of them gets a page. One gives
        # way at a time; the last one alone always fits, or is told that it never will.
        while not self._rows and (state.prefilling or state.queue):
            if state.prefilling:
                state.retract(gives_way(state, state.prefilling.values()))
            self._prefill()
        if not self._rows:
            return None
        return StepPlan(step=step, rows=tuple(self._rows), changes=tuple(self._changes))

    def _prefill(self) -> None:
        for sequence in self._state.prefilling.values():
            self._add_chunk(sequence)
        if self._budget <= 0:
            return
        for started in admitted(self._state):
            self._add_chunk(started)
            if self._budget <= 0:
                return

    def _limit_prefill(self) -> None:
        """Leave of the budget what may share this step with those that decode."""
        state = self._state
        coming = 0 if state.admission_blocked else min(len(state.queue), len(state.free_slots))
        most = self._pace.prefill_tokens(len(state.decoding), len(state.prefilling) + coming)
        if most is not None:
            self._budget = min(self._budget, most)

    def _add_chunk(self, sequence: Sequence) -> None:
        store, limits = self._state.store, self._state.limits
        room = (len(sequence.pages) + store.available) * limits.page_size - sequence.computed
        left = len(sequence.tokens) - sequence.computed
        size = min(limits.chunk, self._budget, left, room)
        if size > 0:
            self._add(sequence, size)

    def _add(self, sequence: Sequence, count: int) -> None:
        store = self._state.store
        missing = store.pages_for(sequence.computed + count) - len(sequence.pages)
        if missing > 0:
            sequence.pages += store.take(missing)
        # Only a row carries its slot's changes: where the step fails, every sequence whose
        # table the runner may have missed ends with it.
        if sequence.dirty_from < len(sequence.pages):
            self._changes.append(self._state.tell_table(sequence))
        self._rows.append(sequence.row(count))
        self.sequences.append(sequence)
        self._budget -= count
