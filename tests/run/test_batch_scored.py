"""A plan with prompts that are scored and logits that are shaped, as index arrays and results."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.contract.memory import Memory
from anychip.contract.tensor import Buffer
from anychip.plan import NOT_SAMPLED, Row, Score, StepPlan, TableChange
from anychip.request import TokenLogprob
from anychip.run.batch import Staging
from anychip.run.choosing import StepLogprobs, share_out
from anychip.run.runner import tokens_of_rows
from anychip.run.sections import MASK, SAMPLED_ONE, sections
from anychip.run.shaping import NO_ENTRIES, Entries
from anychip.run.sizes import Choice, Sizes, entry_room, sizes_of
from anychip.run.tables import PageTables


class OneCopy(Memory, abstract=True):
    """Memory that keeps what was copied in."""

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(None, nbytes)

    def copy_in(self, target, source) -> None:
        self.words = np.frombuffer(source, np.int32).copy()


CHANGES = tuple(TableChange(slot=slot, first=0, pages=(9 - slot,)) for slot in range(4))
SAMPLES = {"sample": True, "temperature": 0.5}
MIDDLE = Row(slot=0, tokens=(1, 2, 3), start=0, sample=False, score=Score((2, 3, 8), 0, 4))
LAST = Row(
    slot=1, tokens=(4, 5, 6), start=2, score=Score((6,), 1, 0), logprobs=2, top_k=3, **SAMPLES
)
SILENT = Row(slot=2, tokens=(7, 8), start=0, sample=False)
DECODES = Row(slot=3, tokens=(9,), start=7, noise=0.25, shaped=True, logprobs=0, **SAMPLES)


def plan_of(*rows: Row) -> StepPlan:
    return StepPlan(step=1, rows=rows, changes=CHANGES)


MIXED = plan_of(DECODES, MIDDLE, LAST, SILENT)
ENTRIES = Entries(
    np.array([0, 5], np.int32),
    np.array([11, 12], np.int32),
    np.array([2.0, 1.0], np.float32),
    np.array([0.5, -np.inf], np.float32),
)


def staged(plan: StepPlan, entries: Entries = NO_ENTRIES, **needs: int) -> dict[str, list]:
    tables = PageTables(4, 8)
    tables.apply(plan.changes)
    sizes = sizes_of(plan, page_size=16, most_pages=8, entries=len(entries.rows), **needs)
    memory = OneCopy()
    staging = Staging(memory, sizes, tables, 16)
    staging._words[:] = 77  # whatever a step before left
    staging.fill(plan, sizes, np.zeros(8, np.int32), entries)
    found = {}
    for name, section in sections(sizes).items():
        if name != MASK:
            words = memory.words[section.start : section.end]
            found[name] = words.view(np.float32) if section.dtype.is_float else words
    return {name: words.tolist() for name, words in found.items()}


def test_sizes() -> None:
    sizes = sizes_of(MIXED, page_size=16, most_pages=8, entries=300, mask_words=3)
    assert sizes == Sizes(9, 4, 6, 8, Choice(False, 1024, 3, 5))


@pytest.mark.parametrize(
    ("row", "top"), [(SILENT, -1), (DECODES, 0), (LAST, 5), (MIDDLE, 5)], ids=str
)
def test_so_many_likeliest_as_some_row_wants(row, top) -> None:
    assert sizes_of(plan_of(SILENT, row), page_size=16, most_pages=8).choice.top == top


def test_room_for_entries() -> None:
    counts = (0, 1, 256, 257, 1024, 1025, 70_000)
    assert [entry_room(n) for n in counts] == [0, 256, 256, 1024, 1024, 4096, 262_144]


def test_logit_rows_are_scored_positions_and_last_ones() -> None:
    found = staged(MIXED)
    assert found["last"] == [0, 1, 2, 3, 5, 6]
    assert found["given"] == [SAMPLED_ONE, 2, 3, 8, 6, SAMPLED_ONE]
    assert found["temperature"] == [0.5, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert found["top_k"] == [-1, -1, -1, -1, -1, 3]
    assert found["noise"] == [0.25, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert "adjusted_rows" not in found


def test_as_many_logit_rows_as_rows_though_not_one_each() -> None:
    """The last chunk of a scored prompt has two, a middle chunk of another none."""
    plan = plan_of(LAST, SILENT)
    assert staged(plan)["last"] == [1, 2]
    assert tokens_of_rows(plan, [31, 32]) == [32, NOT_SAMPLED]
    assert tokens_of_rows(plan_of(SILENT, LAST), [31, 32]) == [NOT_SAMPLED, 32]


def test_tokens_of_rows() -> None:
    assert tokens_of_rows(MIXED, [40, 41, 42, 43, 44, 45]) == [40, NOT_SAMPLED, 45, NOT_SAMPLED]
    assert tokens_of_rows(plan_of(DECODES, DECODES), [40, 41]) == [40, 41]
    assert tokens_of_rows(plan_of(SILENT), []) == [NOT_SAMPLED]


def test_entries_and_the_padding_behind_them() -> None:
    found = staged(MIXED, ENTRIES, mask_words=3)
    assert found["adjusted_rows"] == [0, 5, *[-1] * 254]
    assert found["adjusted_ids"][:2] == [11, 12]
    assert found["repetition"][:2] == [2.0, 1.0]
    assert found["bias"][:2] == [0.5, -np.inf]


def test_masks_lie_behind_what_is_copied_first() -> None:
    sizes = sizes_of(MIXED, page_size=16, most_pages=8, entries=2, mask_words=3)
    *_, before, mask = sorted(sections(sizes).values(), key=lambda section: section.start)
    assert mask == sections(sizes)[MASK] and before.end <= mask.start
    memory = OneCopy()
    staging = Staging(memory, sizes, PageTables(4, 8), 16)
    staging.masks(sizes)[:] = np.arange(18).reshape(6, 3)
    staging.fill(MIXED, sizes, np.zeros(8, np.int32), ENTRIES)
    assert len(memory.words) == before.end
    staging.copy_masks(sizes)
    assert memory.words.tolist() == list(range(18))


def test_probabilities_go_to_their_rows() -> None:
    rows = np.arange(6)
    ids = np.repeat(rows[:, None].astype(np.int32), 5, axis=1) * 10 + np.arange(5, dtype=np.int32)
    values = -ids.astype(np.float32)
    values[1, 3] = np.nan  # a vocabulary that has no more
    told = StepLogprobs(-rows.astype(np.float32), rows.astype(np.int32) + 1, values, ids)
    logprobs, scores = share_out(MIXED, told)

    def of(row: int, top: int) -> TokenLogprob:
        pairs = ((10 * row + n, float(-10 * row - n)) for n in range(top))
        return TokenLogprob(-float(row), row + 1, tuple(pairs))

    assert logprobs == {0: of(0, 0), 2: of(5, 2)}
    assert scores == {1: (of(1, 3), of(2, 4), of(3, 4)), 2: (of(4, 0),)}
