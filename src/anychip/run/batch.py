"""A plan as index arrays: one staging array on the host, one copy to the device a step."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer, IndexPair, Shape, Tensor
from anychip.plan import PREV, Row, StepPlan
from anychip.run.shaping import NO_ENTRIES, Entries
from anychip.run.sizes import KEPT, Sizes
from anychip.run.tables import PageTables

ALIGNMENT = 16  # words of 4 bytes: every array starts at a multiple of 64 bytes


@dataclass(frozen=True)
class Section:
    """One array within the staging words."""

    start: int
    shape: Shape
    dtype: DType

    @property
    def end(self) -> int:
        """Word behind the last one."""
        return self.start + math.prod(self.shape)


def index_shapes(sizes: Sizes, *, states: bool = False) -> dict[str, Shape]:
    """Index arrays of a step and their shapes; see `model/network.py`.

    states: the model has recurrent state. given: tokens whose probability is told; SAMPLED_ONE
    where it is that of the sampled one.
    """
    t, b, r, k = (sizes.tokens,), (sizes.rows,), (sizes.samples,), (sizes.choice.entries,)
    found: dict[str, Shape] = {
        "tokens": t,
        "positions": t,
        "slots": t,
        "token_rows": t,
        "page_table": (sizes.rows, sizes.pages),
        "cu_q": (sizes.rows + 1,),
        "kv_lens": b,
        "last": r,
        "top_k": r,
    }
    if sizes.choice.entries:
        found |= {"adjusted_rows": k, "adjusted_ids": k}
    if sizes.choice.top >= 0:
        found["given"] = r
    if states:
        found |= {"state_from": b, "state_to": b}
    return found


SAMPLED_ONE = -1

FLOAT_INPUTS = ("temperature", "top_p", "min_p", "noise")
"""float32 arrays [R] that the sampler reads."""

MASK = "mask"
"""int32 [R, W], last in the staging words and copied alone: it is made while the network runs."""

_SCORED = Row(slot=-1, tokens=(), start=0, sample=False)
"""How a position is sampled whose token is there already: greedily, and nobody looks."""


def float_shapes(sizes: Sizes) -> dict[str, Shape]:
    """float32 arrays of a step and their shapes."""
    found: dict[str, Shape] = dict.fromkeys(FLOAT_INPUTS, (sizes.samples,))
    if sizes.choice.entries:
        found |= dict.fromkeys(("repetition", "bias"), (sizes.choice.entries,))
    return found


def sections(sizes: Sizes, *, states: bool = False) -> dict[str, Section]:
    """Where each array of a step lies in the staging words. states: as in `index_shapes`."""
    found: dict[str, Section] = {}
    start = 0
    shapes = [(n, s, DType.INT32) for n, s in index_shapes(sizes, states=states).items()]
    shapes += [(n, s, DType.FLOAT32) for n, s in float_shapes(sizes).items()]
    if sizes.choice.mask_words:
        shapes.append((MASK, (sizes.samples, sizes.choice.mask_words), DType.INT32))
    for name, shape, dtype in shapes:
        found[name] = Section(start, shape, dtype)
        start = -(-found[name].end // ALIGNMENT) * ALIGNMENT
    return found


def staging_words(sizes: Sizes, *, states: bool = False) -> int:
    """Words that a step of these sizes stages."""
    return max(section.end for section in sections(sizes, states=states).values())


class Layout:
    """Where a step of some sizes is staged: kept, since most steps have the sizes of the last.

    arrays: over the staging words, by name; floats: the sampler's, seen as float32. views: all of
    these without numpy, whose calls cost much where few numbers are written. mask: where the rows'
    masks lie; None: there are none.
    """

    __slots__ = ("arrays", "floats", "mask", "source", "target", "views")

    def __init__(
        self, words: npt.NDArray[np.int32], buffer: Buffer, sizes: Sizes, *, states: bool = False
    ) -> None:
        found = sections(sizes, states=states)
        self.mask = found.pop(MASK, None)
        count = max(section.end for section in found.values())
        self.arrays = {n: words[s.start : s.end] for n, s in found.items()}
        self.floats = {n: self.arrays[n].view(np.float32) for n in float_shapes(sizes)}
        self.views = {n: found.data for n, found in (self.arrays | self.floats).items()}
        self.target = Tensor((count,), DType.INT32, buffer=buffer)
        self.source = words[:count].view(np.uint8).data


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
    """Host words and device words of the largest step; each step fills a front part of both."""

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
        self._words: npt.NDArray[np.int32] = np.zeros(words, np.int32)
        self._counted = np.arange(largest.tokens + 1, dtype=np.int32)
        self.buffer = memory.allocate(4 * words)
        self._layout = lru_cache(KEPT)(
            lambda sizes: Layout(self._words, self.buffer, sizes, states=states)
        )
        self._plain: tuple[Layout, list[int], int] | None = None

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
        """Write a plan's arrays, but for the masks, and queue their copy to the device.

        sampled: tokens of the step before by slot, for PREV.
        """
        layout = self._layout(sizes)
        if plan.plain:
            self._fill_plain(plan, sizes, layout, sampled)
        else:
            self._fill_any(plan, sizes, layout, sampled, entries)
        self._memory.copy_in(layout.target, layout.source)

    def _fill_any(
        self,
        plan: StepPlan,
        sizes: Sizes,
        layout: Layout,
        sampled: Sequence[int],
        entries: Entries,
    ) -> None:
        self._plain = None
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

    def _fill_plain(
        self, plan: StepPlan, sizes: Sizes, layout: Layout, sampled: Sequence[int]
    ) -> None:
        """Most steps: those of the rows before, one position further."""
        rows, views = plan.rows, layout.views
        slots, starts = [row.slot for row in rows], [row.start for row in rows]
        if self._plain == (layout, slots, self._tables.version - len(plan.changes)):
            for change in plan.changes:
                first = slots.index(change.slot) * sizes.pages + change.first
                views["page_table"][first : first + len(change.pages)] = array("i", change.pages)
        else:
            self._fill_order(sizes, slots, layout.arrays)
        self._plain = layout, slots, self._tables.version
        size, pages = self._page_size, self._tables.view
        tokens = [row.tokens[0] for row in rows]
        if PREV in tokens:
            tokens = [
                sampled[slot] if token == PREV else token
                for slot, token in zip(slots, tokens, strict=True)
            ]
        places = [
            pages[slot, start // size] * size + start % size
            for slot, start in zip(slots, starts, strict=True)
        ]
        views["tokens"][:] = array("i", tokens)
        views["positions"][:] = array("i", starts)
        views["slots"][:] = array("i", places)
        views["kv_lens"][:] = array("i", [start + 1 for start in starts])
        if self._states:
            views["state_from"][:] = array("i", [row.state_from for row in rows])
            views["state_to"][:] = array("i", [row.state_to for row in rows])
        if not sizes.choice.greedy:
            views["top_k"][:] = array("i", [row.top_k for row in rows])
            for name in FLOAT_INPUTS:
                views[name][:] = array("f", [getattr(row, name) for row in rows])

    def _fill_order(
        self, sizes: Sizes, slots: list[int], arrays: dict[str, npt.NDArray[np.int32]]
    ) -> None:
        """What stays as it is while the rows and their pages do."""
        arrays["page_table"][:] = self._tables.pages[slots, : sizes.pages].reshape(-1)
        arrays["token_rows"][:] = arrays["last"][:] = self._counted[: sizes.rows]
        arrays["cu_q"][:] = self._counted[: sizes.rows + 1]

    def masks(self, sizes: Sizes) -> npt.NDArray[np.int32]:
        """Where the masks of the step are written, [R, W]: all of them before `copy_masks`."""
        section = self._layout(sizes).mask
        assert section is not None, "the step has no masks"
        return self._words[section.start : section.end].reshape(section.shape)

    def copy_masks(self, sizes: Sizes) -> None:
        """Queue their copy to the device, behind what runs."""
        section = self._layout(sizes).mask
        assert section is not None, "the step has no masks"
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
