"""A plan as index arrays: one staging array on the host, one copy to the device a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.tensor import IndexPair, Tensor
from anychip.plan import PREV, Row, StepPlan
from anychip.run.plain_steps import PlainSteps
from anychip.run.sections import (
    FLOAT_INPUTS,
    MASK,
    SAMPLED_ONE,
    Layout,
    Section,
    float_shapes,
    index_shapes,
    sections,
    staging_words,
)
from anychip.run.shaping import NO_ENTRIES, Entries
from anychip.run.sizes import KEPT, Sizes
from anychip.run.tables import PageTables
from anychip.run.watched import in_place

_SCORED = Row(slot=-1, tokens=(), start=0, sample=False)
"""How a position is sampled whose token is there already: greedily, and nobody looks."""


def _put_sampled(
    rows: tuple[Row, ...], arrays: dict[str, npt.NDArray[np.int32]], sampled: Sequence[int]
) -> None:
    """Replace every PREV by what its slot sampled in the step before."""
    tokens = arrays["tokens"]
    (places,) = np.nonzero(tokens == PREV)
    if len(places):
        slots = np.array([row.slot for row in rows], np.int32)
        tokens[places] = np.asarray(sampled, np.int32)[slots[arrays["token_rows"][places]]]


def logit_rows(plan: StepPlan) -> list[Row]:
    """How the token of each of the R logit rows is sampled: a row's scored ones, then its last."""
    found = []
    for row in plan.rows:
        found += [_SCORED] * (row.logit_rows - row.sample)
        if row.sample:
            found.append(row)
    return found


def given_tokens(plan: StepPlan) -> list[int]:
    """The token of each logit row whose probability is told, or SAMPLED_ONE."""
    found: list[int] = []
    for row in plan.rows:
        found += row.score.tokens if row.score else ()
        found += (SAMPLED_ONE,) * row.sample
    return found


def one_logit_each(rows: tuple[Row, ...]) -> bool:
    """Whether every row samples and nothing else is wanted of it: so it is in most steps."""
    return all(row.sample and row.score is None for row in rows)


def _logit_positions(rows: tuple[Row, ...], ends: npt.NDArray[np.int32]) -> list[int]:
    """Index among the step's tokens of each logit row."""
    found: list[int] = []
    for row, end in zip(rows, ends.tolist(), strict=True):
        if row.score:
            first = end - len(row.tokens) + row.score.at
            found += range(first, first + len(row.score.tokens))
        if row.sample:
            found.append(end - 1)
    return found


def _put_entries(layout: Layout, entries: Entries) -> None:
    """The entries, and behind them padding, which belongs to no row."""
    count = len(entries.rows)
    layout.arrays["adjusted_rows"][:count] = entries.rows
    layout.arrays["adjusted_rows"][count:] = -1
    layout.arrays["adjusted_ids"][:count] = entries.ids
    layout.floats["repetition"][:count] = entries.repetition
    layout.floats["bias"][:count] = entries.bias


class Staging:
    """Host words and device words of the largest step; each step fills a front part of both.

    Where the host writes the device's memory in place, both are the same.
    plain: writes plain steps ahead; others may use the words meanwhile.
    """

    def __init__(
        self,
        memory: Memory,
        largest: Sizes,
        tables: PageTables,
        page_size: int,
        *,
        states: bool = False,
    ) -> None:
        """states: rows have slots of recurrent state. Raises ChipError."""
        self._states = states
        words = staging_words(largest, states=states)
        self._memory, self._tables, self._page_size = memory, tables, page_size
        self.buffer = memory.allocate(4 * words)
        there = in_place(memory, Tensor((words,), DType.INT32, buffer=self.buffer))
        # Mostly room for entries and masks: no page is taken for it until somebody has some, for a
        # step writes all that it reads.
        self._words: npt.NDArray[np.int32]
        self._words = np.zeros(words, np.int32) if there is None else np.frombuffer(there, np.int32)
        self._target = self.buffer if there is None else None
        ahead: npt.NDArray[np.int32] = np.zeros(words, np.int32)
        self._counted = np.arange(largest.tokens + 1, dtype=np.int32)
        self._layout = lru_cache(KEPT)(
            lambda sizes: Layout(self._words, ahead, self._target, sizes, states=states)
        )
        self.plain = PlainSteps(self._layout, tables, page_size, states=states)

    def indices(self, sizes: Sizes) -> dict[str, IndexPair]:
        """Index pairs over the staging words."""
        layout = sections(sizes, states=self._states)
        names = index_shapes(sizes, states=self._states)
        return {n: IndexPair(self._host(layout[n]), self._device(layout[n])) for n in names}

    def inputs(self, sizes: Sizes) -> dict[str, Tensor]:
        """The sampler's float arrays on the device."""
        layout = sections(sizes, states=self._states)
        names = [*float_shapes(sizes), *((MASK,) if MASK in layout else ())]
        return {n: self._device(layout[n]) for n in names}

    def fill(
        self,
        plan: StepPlan,
        sizes: Sizes,
        sampled: Sequence[int],
        entries: Entries = NO_ENTRIES,
    ) -> None:
        """Write any plan's arrays, but for the masks, and queue their copy to the device.

        sampled: tokens of the step before by slot, for PREV.
        """
        layout = self._layout(sizes)
        self._fill_any(plan, sizes, layout, sampled, entries)
        self.send(layout)

    def send(self, layout: Layout) -> None:
        """Queue the copy of a step's words, but for the masks, to the device."""
        if layout.target is not None:
            self._memory.copy_in(layout.target, layout.source)

    def _fill_any(
        self,
        plan: StepPlan,
        sizes: Sizes,
        layout: Layout,
        sampled: Sequence[int],
        entries: Entries,
    ) -> None:
        self._fill_tokens(plan.rows, sizes, layout.arrays)
        if self._states:
            layout.arrays["state_from"][:] = [row.state_from for row in plan.rows]
            layout.arrays["state_to"][:] = [row.state_to for row in plan.rows]
        _put_sampled(plan.rows, layout.arrays, sampled)
        if not sizes.choice.greedy:  # nothing reads them in a greedy step
            sampling = logit_rows(plan)
            layout.arrays["top_k"][:] = [row.top_k for row in sampling]
            for name in FLOAT_INPUTS:
                layout.floats[name][:] = [getattr(row, name) for row in sampling]
        if sizes.choice.entries:
            _put_entries(layout, entries)
        if sizes.choice.top >= 0:
            layout.arrays["given"][:] = given_tokens(plan)

    def masks(self, sizes: Sizes) -> npt.NDArray[np.int32]:
        """Where the masks of the step are written, [R, W]: all of them before `copy_masks`."""
        section = self._layout(sizes).mask
        assert section is not None, "the step has no masks"
        return self._words[section.start : section.end].reshape(section.shape)

    def copy_masks(self, sizes: Sizes) -> None:
        """Queue their copy to the device, behind what runs."""
        section = self._layout(sizes).mask
        assert section is not None, "the step has no masks"
        if self._target is not None:
            self._memory.copy_in(self._device(section), self._host(section))

    def _fill_tokens(
        self, rows: tuple[Row, ...], sizes: Sizes, arrays: dict[str, npt.NDArray[np.int32]]
    ) -> None:
        starts = np.array([row.start for row in rows], np.int32)
        tables = self._tables.pages[[row.slot for row in rows], : sizes.pages]
        count = len(rows)
        counts = np.array([len(row.tokens) for row in rows], np.int32)
        ends, lengths = np.cumsum(counts, dtype=np.int32), starts + counts
        token_rows = np.repeat(self._counted[:count], counts)
        positions = self._counted[: sizes.tokens] + (lengths - ends)[token_rows]
        page, offset = np.divmod(positions, self._page_size)
        arrays["tokens"][:] = [token for row in rows for token in row.tokens]
        arrays["positions"][:] = positions
        arrays["slots"][:] = tables[token_rows, page] * self._page_size + offset
        arrays["token_rows"][:] = token_rows
        arrays["page_table"][:] = tables.reshape(-1)
        arrays["cu_q"][0] = 0
        arrays["cu_q"][1:] = ends
        arrays["kv_lens"][:] = lengths
        arrays["last"][:] = ends - 1 if one_logit_each(rows) else _logit_positions(rows, ends)

    def _host(self, section: Section) -> memoryview:
        return self._words[section.start : section.end].data

    def _device(self, section: Section) -> Tensor:
        return Tensor(section.shape, section.dtype, buffer=self.buffer, offset=4 * section.start)
