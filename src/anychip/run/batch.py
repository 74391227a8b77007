"""A plan as index arrays: one staging array on the host, one copy to the device a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer, IndexPair, Shape, Tensor
from anychip.plan import PREV, Row, StepPlan
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


def index_shapes(sizes: Sizes) -> dict[str, Shape]:
    """Index arrays of a step and their shapes; see `model/network.py`."""
    t, b, r = (sizes.tokens,), (sizes.rows,), (sizes.samples,)
    return {
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


FLOAT_INPUTS = ("temperature", "top_p", "min_p", "noise")
"""float32 arrays [R] that the sampler reads."""


def sections(sizes: Sizes) -> dict[str, Section]:
    """Where each array of a step lies in the staging words."""
    found: dict[str, Section] = {}
    start = 0
    shapes = [(n, s, DType.INT32) for n, s in index_shapes(sizes).items()]
    shapes += [(n, (sizes.samples,), DType.FLOAT32) for n in FLOAT_INPUTS]
    for name, shape, dtype in shapes:
        found[name] = Section(start, shape, dtype)
        start = -(-found[name].end // ALIGNMENT) * ALIGNMENT
    return found


def staging_words(sizes: Sizes) -> int:
    """Words that a step of these sizes stages."""
    return max(section.end for section in sections(sizes).values())


class Layout:
    """Where a step of some sizes is staged: kept, since most steps have the sizes of the last.

    arrays: over the staging words, by name; floats: the sampler's, seen as float32.
    """

    __slots__ = ("arrays", "floats", "source", "target")

    def __init__(self, words: npt.NDArray[np.int32], buffer: Buffer, sizes: Sizes) -> None:
        found = sections(sizes)
        count = max(section.end for section in found.values())
        self.arrays = {n: words[s.start : s.end] for n, s in found.items()}
        self.floats = {n: self.arrays[n].view(np.float32) for n in FLOAT_INPUTS}
        self.target = Tensor((count,), DType.INT32, buffer=buffer)
        self.source = words[:count].data


def _put_sampled(
    rows: tuple[Row, ...], arrays: dict[str, npt.NDArray[np.int32]], sampled: npt.NDArray[np.int32]
) -> None:
    """Replace every PREV by what its slot sampled in the step before."""
    tokens = arrays["tokens"]
    (places,) = np.nonzero(tokens == PREV)
    if len(places):
        slots = np.array([row.slot for row in rows], np.int32)
        tokens[places] = sampled[slots[arrays["token_rows"][places]]]


class Staging:
    """Host words and device words of the largest step; each step fills a front part of both."""

    def __init__(self, memory: Memory, largest: Sizes, tables: PageTables, page_size: int) -> None:
        words = staging_words(largest)
        self._memory, self._tables, self._page_size = memory, tables, page_size
        self._words: npt.NDArray[np.int32] = np.zeros(words, np.int32)
        self._counted = np.arange(largest.tokens + 1, dtype=np.int32)
        self.buffer = memory.allocate(4 * words)
        self._layout = lru_cache(KEPT)(lambda sizes: Layout(self._words, self.buffer, sizes))

    def indices(self, sizes: Sizes) -> dict[str, IndexPair]:
        """Index pairs over the staging words."""
        layout = sections(sizes)
        names = index_shapes(sizes)
        return {n: IndexPair(self._host(layout[n]), self._device(layout[n])) for n in names}

    def inputs(self, sizes: Sizes) -> dict[str, Tensor]:
        """The sampler's float arrays on the device."""
        layout = sections(sizes)
        return {n: self._device(layout[n]) for n in FLOAT_INPUTS}

    def fill(self, plan: StepPlan, sizes: Sizes, sampled: npt.NDArray[np.int32]) -> None:
        """Write a plan's arrays and queue their copy to the device.

        sampled: tokens of the step before by slot, int32 [max_running], for PREV.
        """
        layout = self._layout(sizes)
        self._fill_tokens(plan.rows, sizes, layout.arrays)
        _put_sampled(plan.rows, layout.arrays, sampled)
        if not sizes.greedy:  # nothing reads them in a greedy step
            sampling = [row for row in plan.rows if row.sample]
            layout.arrays["top_k"][:] = [row.top_k for row in sampling]
            for name, array in layout.floats.items():
                array[:] = [getattr(row, name) for row in sampling]
        self._memory.copy_in(layout.target, layout.source)

    def _fill_tokens(
        self, rows: tuple[Row, ...], sizes: Sizes, arrays: dict[str, npt.NDArray[np.int32]]
    ) -> None:
        starts = np.array([row.start for row in rows], np.int32)
        tables = self._tables.pages[[row.slot for row in rows], : sizes.pages]
        count = len(rows)
        if sizes.tokens == count:  # a token a row: most steps, and each costs Python's time
            token_rows, positions, ends = (
                self._counted[:count],
                starts,
                self._counted[1 : count + 1],
            )
            lengths = starts + 1
        else:
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
        sampled = ends if sizes.samples == count else ends[[row.sample for row in rows]]
        arrays["last"][:] = sampled - 1

    def _host(self, section: Section) -> memoryview:
        return self._words[section.start : section.end].data

    def _device(self, section: Section) -> Tensor:
        return Tensor(section.shape, section.dtype, buffer=self.buffer, offset=4 * section.start)
