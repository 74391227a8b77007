"""Sequences that begin with the same pages: bits are those of each sequence alone."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, normal, same_bits

ATTRS = {"causal": True, "window": 0, "softcap": 0.0, "scale": 0.2}
PREFIXES = [(1, 203), (16, 208), (64, 192), (16, 1024), (1, 1090)]
MASKS = [{}, {"causal": False}, {"window": 300}, {"softcap": 3.0}]


class Shared:
    """Rows of one token at a sequence's end. given: (prefix, positions of each row that has it)."""

    def __init__(self, given, *, page=16, heads=9, kv_heads=3, dim=64, order=None):
        rows = [(i, prefix, n) for i, (prefix, lens) in enumerate(given) for n in lens]
        rows = [rows[i] for i in (order or range(len(rows)))]
        self.lens = np.array([n for _, _, n in rows], np.int32)
        self.ends = self.lens  # one past each row's token
        width = -(-max(self.lens) // page)
        fresh = iter(np.random.default_rng(7).permutation(len(rows) * width) + 1)
        self.table = np.array([[next(fresh) for _ in range(width)] for _ in rows], np.int32)
        first = {}
        for row, (group, prefix, _) in enumerate(rows):
            leader = first.setdefault(group, row)
            self.table[row, : prefix // page] = self.table[leader, : prefix // page]
        shape = (len(rows) * width + 1, page, kv_heads, dim)
        self.k, self.v = (2 * normal(i, *shape, dtype=BF16) for i in (1, 2))
        self.q = normal(3, len(rows), heads, dim, dtype=BF16)

    def run(self, calls, cache, rows, attrs):
        rows = np.array(rows)
        return calls.call(
            "paged_attention",
            {**ATTRS, **attrs},
            q=self.q[rows],
            cache=cache,
            page_table=self.table[rows],
            cu_q=np.arange(len(rows) + 1, dtype=np.int32),
            kv_lens=self.lens[rows],
            positions=self.ends[rows] - 1,
            token_rows=np.arange(len(rows)),
        )

    def check(self, calls, attrs=None):
        view = calls.cache(self.k, self.v)
        calls.made.clear()  # the cache stays, from call to call
        together = self.run(calls, view, range(len(self.lens)), attrs or {})
        for row in range(len(self.lens)):
            alone = self.run(calls, view, [row], attrs or {})
            assert same_bits(together[row : row + 1], alone), row
        for tensor in (view.k, view.v):
            calls.chip.memory.free(tensor.buffer)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [2, 3, 8, 20])
@pytest.mark.parametrize(("page", "prefix"), PREFIXES)
def test_a_prefix_that_ends_anywhere(best, page, prefix, rows, threads):
    lens = [prefix + 1 + 37 * i % 150 for i in range(rows)]
    Shared([(prefix, lens)], page=page).check(best(threads=threads))


@pytest.mark.parametrize("attrs", MASKS, ids=str)
def test_groups_and_strangers_in_any_order(each, attrs):
    given = [(0, [700, 40]), (256, [257, 300, 500]), (640, [1100] * 4), (128, [128, 200])]
    given.append((0, [130]))
    for seed in (1, 2):
        order = list(np.random.default_rng(seed).permutation(12))
        Shared(given, order=order).check(each, attrs)


@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (20, 1), (15, 5), (16, 16)])
@pytest.mark.parametrize("rows", [3, 18])
def test_head_counts(best, heads, rows):
    shared = Shared([(400, [450] * rows)], heads=heads[0], kv_heads=heads[1], dim=32)
    for threads in (1, 4):
        shared.check(best(threads=threads))


@pytest.mark.parametrize("rows", [2, 5])
def test_spans_that_several_read_at_once(best, rows):
    """Few rows of long contexts, whose spans are tasks of their own."""
    for prefix in (1024, 2048, 2112):
        Shared([(prefix, [2115 + 512 * i for i in range(rows)])]).check(best(threads=2))
        Shared([(prefix, [2115 + 512 * i for i in range(rows)])]).check(best(threads=16))


def test_prefixes_within_prefixes(best):
    """All share some, some share more."""
    shared = Shared([(640, [800] * 4), (512, [700] * 4), (256, [300] * 3)])
    shared.table[4:, :16] = shared.table[0, :16]
    shared.check(best())


def test_tokens_of_one_sequence(best):
    """As where drafted tokens are verified: each sees one position more than the one before."""
    shared = Shared([(320, list(range(317, 323)))])
    shared.table[:], shared.ends = shared.table[5], shared.lens.copy()
    shared.lens[:] = 322
    shared.check(best())


def test_more_groups_than_the_workspace_has_room_for(best):
    Shared([(128, [140, 150]) for _ in range(70)]).check(best())
