"""The numbers of a plain step, written before it begins: maybe while the one before still runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from anychip.plan import PREV, StepPlan
from anychip.run.programs import StepProgram
from anychip.run.sections import FLOAT_INPUTS, Layout
from anychip.run.sizes import Sizes
from anychip.run.tables import PageTables


class Written(msgspec.Struct, frozen=True):
    """A plain step that is written but for the tokens that the step before samples.

    previous: which rows take theirs from there, and of which slots. goes_on: all rows do, and they
    are those of the step before, in its order.
    """

    plan: StepPlan
    sizes: Sizes
    layout: Layout
    slots: list[int]
    version: int
    goes_on: bool
    previous: list[tuple[int, int]]

    def take_over(self, sampled: Sequence[int]) -> None:
        """Put the tokens of the step before where they belong. sampled: by slot."""
        for place, slot in self.previous:
            self.layout.tokens[place] = sampled[slot]


class Ready(NamedTuple):
    """What a plain step needs that has the sizes of the last: its program, and where the host
    finds what it sampled. copied: the same as bytes, where it has to be copied there."""

    layout: Layout
    program: StepProgram
    drawn: memoryview[int]
    copied: memoryview | None


class PlainSteps:
    """Writes plain steps into the words that a `Layout` has ahead, one after another.

    Most are those of the rows before, one position further: what stays as it was is left there.
    """

    def __init__(
        self,
        layout: Callable[[Sizes], Layout],
        tables: PageTables,
        page_size: int,
        *,
        states: bool = False,
    ) -> None:
        """states: rows have slots of recurrent state."""
        self._layout, self._tables, self._page_size = layout, tables, page_size
        self._states = states
        self._last: Written | None = None

    def write(self, plan: StepPlan, sizes: Sizes, before: StepPlan | None) -> Written:
        """Write a step whose changes the page tables have already.

        before: the plan of the step in front of it, whose tokens PREV stands for; None: not known.
        """
        layout, last, rows = self._layout(sizes), self._last, plan.rows
        slots = [row.slot for row in rows]
        if last is not None and (last.layout is not layout or last.slots != slots):
            last = None  # of other rows
        if last is None or last.version + len(plan.changes) != self._tables.version:
            self._write_order(layout, sizes, slots)
        elif plan.changes:
            self._write_changes(plan, layout, sizes, slots)
        previous = self._write_rows(plan, layout)
        if not sizes.choice.greedy:
            layout.views["top_k"][:] = array("i", [row.top_k for row in rows])
            for name in FLOAT_INPUTS:
                layout.views[name][:] = array("f", [getattr(row, name) for row in rows])
        goes_on = last is not None and last.plan is before and len(previous) == len(rows)
        version = self._tables.version
        self._last = Written(plan, sizes, layout, slots, version, goes_on, previous)
        return self._last

    def _write_rows(self, plan: StepPlan, layout: Layout) -> list[tuple[int, int]]:
        """What is new in each step; returns which rows want a token of the step before."""
        views, size, pages, previous = layout.views, self._page_size, self._tables.view, []
        tokens, positions, places = views["tokens"], views["positions"], views["slots"]
        lengths = views["kv_lens"]
        for place, row in enumerate(plan.rows):
            slot, start, (token,) = row.slot, row.start, row.tokens
            if token == PREV:
                previous.append((place, slot))
            tokens[place], positions[place], lengths[place] = token, start, start + 1
            places[place] = pages[slot, start // size] * size + start % size
        if self._states:
            views["state_from"][:] = array("i", [row.state_from for row in plan.rows])
            views["state_to"][:] = array("i", [row.state_to for row in plan.rows])
        return previous

    def _write_changes(
        self, plan: StepPlan, layout: Layout, sizes: Sizes, slots: list[int]
    ) -> None:
        """The page tables that are there already follow the step's changes."""
        table = layout.views["page_table"]
        for change in plan.changes:
            first = slots.index(change.slot) * sizes.pages + change.first
            table[first : first + len(change.pages)] = array("i", change.pages)

    def _write_order(self, layout: Layout, sizes: Sizes, slots: list[int]) -> None:
        """What stays as it is while the rows and their pages do."""
        views, counted = layout.views, array("i", range(sizes.rows + 1))
        views["page_table"][:] = self._tables.pages[slots, : sizes.pages].reshape(-1).data
        views["token_rows"][:] = views["last"][:] = counted[:-1]
        views["cu_q"][:] = counted
