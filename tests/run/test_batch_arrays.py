"""A plan as index arrays."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer
from anychip.plan import PREV, Row, StepPlan, TableChange
from anychip.run.batch import Staging
from anychip.run.sections import FLOAT_INPUTS, sections, staging_words
from anychip.run.sizes import SAMPLED, Sizes, sizes_of, table_width
from anychip.run.tables import PageTables


class OneCopy(Memory, abstract=True):
    """Memory that keeps what was copied in."""

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(None, nbytes)

    def copy_in(self, target, source) -> None:
        self.words = np.frombuffer(source, np.int32).copy()


class InPlace(OneCopy, abstract=True):
    """Memory that the host sees, with something in it."""

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(np.full(nbytes, 0x5A, np.uint8), nbytes)

    def host_view(self, tensor) -> memoryview:
        return tensor.buffer.handle.data


PLAN = StepPlan(
    step=0,
    rows=(
        Row(slot=2, tokens=(7,), start=5, sample=True, temperature=0.5, noise=0.25),
        Row(slot=0, tokens=(1, 2, 3), start=0, sample=False),
        Row(slot=1, tokens=(4, 5), start=3, sample=True, top_k=3),
    ),
    changes=(
        TableChange(slot=0, first=0, pages=(9,)),
        TableChange(slot=1, first=0, pages=(4, 6)),
        TableChange(slot=2, first=0, pages=(3, 8)),
    ),
)


DECODE = msgspec.structs.replace(
    PLAN,
    rows=(
        Row(slot=2, tokens=(7,), start=5, sample=True),
        Row(slot=1, tokens=(4,), start=3, sample=True),
    ),
)


SAMPLED_BEFORE = [20, 21, 22]


def plain(*rows: Row, changes: tuple[TableChange, ...] = ()) -> StepPlan:
    return StepPlan(step=0, rows=rows, changes=changes, plain=True)


def row(slot: int, start: int, token: int = 9, **more) -> Row:
    return Row(slot=slot, tokens=(token,), start=start, sample=True, **more)


NEXT = TableChange(slot=2, first=1, pages=(5,))
PLAIN_STEPS = [
    plain(row(2, 5), row(1, 3)),
    plain(row(2, 6), row(1, 4, PREV)),
    plain(row(2, 7, PREV), row(1, 5), changes=(NEXT,)),
    plain(row(1, 6), row(2, 4)),
    plain(row(1, 7, temperature=0.5, top_k=3, noise=0.25), row(2, 5)),
    DECODE,
    plain(row(1, 7), row(2, 5)),
    PLAN,
    plain(row(1, 7), row(2, 5)),
    plain(row(0, 1)),
    plain(row(1, 1)),
]


def staged(*plans: StepPlan) -> dict[str, list]:
    """The arrays of the last of these plans, all filled one after another."""
    tables = PageTables(3, 8)
    tables.apply(PLAN.changes)
    memory, largest = OneCopy(), sizes_of(PLAN, page_size=4, most_pages=8)
    staging = Staging(memory, largest, tables, 4)
    for plan in plans:
        if plan is not PLAN:
            tables.apply(plan.changes)
        sizes = sizes_of(plan, page_size=4, most_pages=8)
        if plan.plain:
            written = staging.plain.write(plan, sizes, None)
            written.layout.source[:] = written.layout.ahead
            written.take_over(SAMPLED_BEFORE)
            staging.send(written.layout)
        else:
            staging.fill(plan, sizes, SAMPLED_BEFORE)
    found = {}
    for name, section in sections(sizes).items():
        words = memory.words[section.start : section.end]
        words = words.view(np.float32) if section.dtype.is_float else words
        found[name] = words.reshape(section.shape).tolist()
    for name, pair in staging.indices(sizes).items():
        assert np.array_equal(np.asarray(pair.host).reshape(pair.device.shape), found[name])
    return found


def test_in_place_a_step_writes_what_it_reads_and_the_rest_stays_untouched() -> None:
    """Room for masks would be megabytes that nobody asked for."""
    tables = PageTables(3, 8)
    tables.apply(PLAN.changes)
    sizes = sizes_of(PLAN, page_size=4, most_pages=8)
    largest = sizes_of(PLAN, page_size=4, most_pages=8, mask_words=100)
    staging = Staging(InPlace(), largest, tables, 4)
    assert set(staging.buffer.handle) == {0x5A}
    staging.fill(PLAN, sizes, SAMPLED_BEFORE)
    for name, pair in staging.indices(sizes).items():
        assert np.asarray(pair.host).reshape(-1).tolist() == np.ravel(staged(PLAN)[name]).tolist()
    assert set(staging.buffer.handle[4 * staging_words(sizes) :]) == {0x5A}


@pytest.fixture
def arrays() -> dict[str, list]:
    return staged(PLAN)


@pytest.mark.parametrize("before", [(), (PLAN,), (DECODE, PLAN)])
def test_a_token_a_row(before) -> None:
    found = staged(*before, DECODE)
    assert (found["tokens"], found["positions"], found["kv_lens"]) == ([7, 4], [5, 3], [6, 4])
    assert (found["token_rows"], found["cu_q"], found["last"]) == ([0, 1], [0, 1, 2], [0, 1])
    assert found["slots"] == [8 * 4 + 1, 4 * 4 + 3]
    assert [row[:2] for row in found["page_table"]] == [[3, 8], [4, 6]]


@pytest.mark.parametrize("count", range(1, len(PLAIN_STEPS) + 1))
def test_a_plain_step_has_the_arrays_of_any_other(count) -> None:
    """Whatever was staged before it: some of what it needs is only kept from there."""
    steps = PLAIN_STEPS[:count]
    alone = [msgspec.structs.replace(step, plain=False) for step in steps]
    found, wanted = staged(*steps), staged(*alone)
    if sizes_of(steps[-1], page_size=4, most_pages=8).choice.greedy:  # nothing reads them then
        for name in ("top_k", *FLOAT_INPUTS):
            del found[name], wanted[name]
    assert found == wanted


def test_tokens_and_positions(arrays) -> None:
    assert arrays["tokens"] == [7, 1, 2, 3, 4, 5]
    assert arrays["positions"] == [5, 0, 1, 2, 3, 4]
    assert arrays["token_rows"] == [0, 1, 1, 1, 2, 2]
    assert arrays["cu_q"] == [0, 1, 4, 6]
    assert arrays["kv_lens"] == [6, 3, 5]


def test_slots_follow_the_page_tables(arrays) -> None:
    assert arrays["slots"] == [8 * 4 + 1, 36, 37, 38, 4 * 4 + 3, 6 * 4]
    assert [row[:2] for row in arrays["page_table"]] == [[3, 8], [9, 0], [4, 6]]


def test_sampling_rows(arrays) -> None:
    assert arrays["last"] == [0, 5]
    assert arrays["top_k"] == [-1, 3]
    assert arrays["temperature"] == [0.5, 0.0]
    assert arrays["noise"] == [0.25, 0.0]


def test_sizes() -> None:
    sizes = sizes_of(PLAN, page_size=4, most_pages=100)
    assert sizes == Sizes(6, 3, 2, 8, SAMPLED)
    assert [table_width(n, 100) for n in (1, 8, 9, 64, 65, 100)] == [8, 8, 16, 64, 100, 100]


def test_arrays_do_not_overlap_and_start_aligned() -> None:
    sizes = Sizes(17, 5, 3, 9)
    ordered = sorted(sections(sizes).values(), key=lambda s: s.start)
    assert all(s.start % 16 == 0 for s in ordered)
    assert all(a.end <= b.start for a, b in itertools.pairwise(ordered))
    assert staging_words(sizes) == ordered[-1].end
