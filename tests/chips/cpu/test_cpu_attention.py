"""Attention over pages: right for every mask and dtype; bits that depend on positions alone."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, normal, relative, same_bits

from anychip.contract.dtype import DType
from anychip.ops.cases.attention import Heads, Ragged, attention_inputs
from anychip.ops.cases.case import Case
from anychip.ops.cases.draw import draw
from anychip.ops.check import check_case
from anychip.ops.placed import place

F32 = np.dtype(np.float32)
ATTRS = {"causal": True, "window": 0, "softcap": 0.0}


class Batch:
    """Sequences with their keys and values laid into shuffled pages; garbage everywhere else."""

    def __init__(self, lens, *, heads=6, kv_heads=2, dim=64, dtype=F32, cache=F32, page=16, seed=0):
        self.lens, self.page, self.width = lens, page, -(-max(lens) // page) + 1
        rng = np.random.default_rng(seed)
        self.q = [normal((seed, i), n, heads, dim, dtype=dtype) for i, n in enumerate(lens)]
        self.k = [normal((seed, i, 1), n, kv_heads, dim, dtype=cache) for i, n in enumerate(lens)]
        self.v = [normal((seed, i, 2), n, kv_heads, dim, dtype=cache) for i, n in enumerate(lens)]
        pages = len(lens) * self.width + 1
        self.table = rng.permutation(np.arange(1, pages)).reshape(len(lens), self.width)
        shape = (pages, page, kv_heads, dim)
        self.k_pages, self.v_pages = (np.full(shape, np.nan, cache) for _ in range(2))
        for row, n in enumerate(lens):
            slots = self.slots(row, np.arange(n))
            self.k_pages.reshape(-1, kv_heads, dim)[slots] = self.k[row]
            self.v_pages.reshape(-1, kv_heads, dim)[slots] = self.v[row]

    def slots(self, row, positions):
        return self.table[row][positions // self.page] * self.page + positions % self.page

    def run(self, calls, pieces, attrs, lens=None):
        """pieces: (row, first, last) of queries in one call, in this order."""
        q = np.concatenate([self.q[r][a:b] for r, a, b in pieces])
        kv_lens = np.zeros(len(self.lens), np.int32)
        for row, _, last in pieces:
            kv_lens[row] = max(last, kv_lens[row])
        return calls.call(
            "paged_attention",
            {**ATTRS, "scale": 0.17, **attrs},
            q=q,
            cache=calls.cache(self.k_pages, self.v_pages),
            page_table=self.table,
            cu_q=np.zeros(len(self.lens) + 1, np.int32),
            kv_lens=kv_lens if lens is None else lens,
            positions=np.concatenate([np.arange(a, b) for _, a, b in pieces]),
            token_rows=np.concatenate([np.full(b - a, r) for r, a, b in pieces]),
        )


def dense(batch, row, first, last, attrs, length=None):
    """The same in float64, written out."""
    attrs = {**ATTRS, "scale": 0.17, **attrs}
    q, k, v = (x[row].astype(np.float64) for x in (batch.q, batch.k, batch.v))
    length = last if length is None else length
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x[:length], group, axis=1) for x in (k, v))
    scores = np.einsum("thd,jhd->htj", q[first:last], k) * attrs["scale"]
    if attrs["softcap"]:
        scores = attrs["softcap"] * np.tanh(scores / attrs["softcap"])
    p, j = np.arange(first, last)[:, None], np.arange(length)[None]
    seen = np.ones((last - first, length), bool)
    if attrs["causal"]:
        seen &= j <= p
    if attrs["window"]:
        seen &= j > p - attrs["window"]
    weights = np.where(seen, np.exp(scores - scores.max(initial=0.0)), 0.0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("htj,jhd->thd", weights, v)


MASKS = [
    {},
    {"causal": False},
    {"window": 1},
    {"window": 100},
    {"softcap": 0.7},
    {"window": 65, "causal": False, "softcap": 2.0},
]


@pytest.mark.parametrize("attrs", MASKS, ids=str)
def test_masks(each, attrs):
    batch = Batch([1, 70, 333])
    pieces = [(2, 300, 333), (0, 0, 1), (1, 0, 70)]
    y = batch.run(each, pieces, attrs)
    wanted = np.concatenate([dense(batch, *p, attrs) for p in pieces])
    plain = np.concatenate([dense(batch, *p, {"scale": 0.3}) for p in pieces])
    assert relative(y, wanted) < 2e-6 and relative(y, plain) > 1e-3


@pytest.mark.parametrize("cache", [F32, BF16, np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_dtypes(each, dtype, cache):
    batch = Batch([90], dtype=dtype, cache=cache)
    y = batch.run(each, [(0, 60, 90)], {})
    assert y.dtype == dtype
    assert relative(y, dense(batch, 0, 60, 90, {})) < (2e-6 if dtype == F32 else 3e-3)


@pytest.mark.parametrize("dim", [8, 24, 96, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (8, 1), (15, 5), (120, 1)])
def test_head_sizes(best, heads, dim):
    for dtype, limit in ((F32, 2e-6), (BF16, 1e-2)):
        sizes = {"heads": heads[0], "kv_heads": heads[1], "dim": dim}
        batch = Batch([75], dtype=dtype, cache=dtype, **sizes)
        for piece in ((0, 0, 75), (0, 74, 75)):
            assert relative(batch.run(best(), [piece], {}), dense(batch, *piece, {})) < limit


@pytest.mark.parametrize("attrs", [{}, {"window": 150, "softcap": 5.0}], ids=str)
def test_bits_depend_on_positions_alone(each, attrs):
    batch = Batch([700, 40, 513])
    whole = batch.run(each, [(0, 0, 700)], attrs)
    for size in (1, 7, 16, 128):
        starts = range(0, 700, size) if size > 7 else range(650, 700, size)
        for first in starts:
            last = min(first + size, 700)
            alone = batch.run(each, [(0, first, last)], attrs)
            assert same_bits(alone, whole[first:last]), (size, first)
    shared = batch.run(each, [(1, 0, 40), (0, 600, 700), (2, 512, 513)], attrs)
    assert same_bits(shared[40:140], whole[600:700])
    assert same_bits(shared[140:], batch.run(each, [(2, 512, 513)], attrs))


@pytest.mark.parametrize("attrs", [{}, {"window": 90}], ids=str)
@pytest.mark.parametrize("heads", [(6, 2), (8, 1), (3, 3), (32, 4)])
def test_one_token_of_many_sequences_has_the_bits_of_a_prompt(each, heads, attrs):
    """Few rows meet a cache of bfloat16 where it lies, all heads of a block together."""
    lens = (300, 64, 65, 1, 130, 33, 257, 16, 96)
    sizes = {"heads": heads[0], "kv_heads": heads[1], "dtype": BF16, "cache": BF16}
    batch = Batch(lens, **sizes)
    last = batch.run(each, [(row, n - 1, n) for row, n in enumerate(lens)], attrs)
    for row, n in enumerate(lens):
        whole = batch.run(each, [(row, 0, n)], attrs)
        assert same_bits(last[row : row + 1], whole[-1:]), n
    assert relative(last[:1], dense(batch, 0, lens[0] - 1, lens[0], attrs)) < 1e-2


@pytest.mark.parametrize("dim", [24, 40, 96])
@pytest.mark.parametrize("heads", [(6, 2), (8, 1), (17, 1)])
def test_bfloat16_in_heads_of_any_size(cpu, heads, dim):
    """Rows that fill no vector, elements that fill none: as many as there are, and no more."""
    batch = Batch([131], heads=heads[0], kv_heads=heads[1], dim=dim, dtype=BF16, cache=BF16)
    whole = batch.run(cpu, [(0, 0, 131)], {})
    assert relative(whole, dense(batch, 0, 0, 131, {})) < 4e-3
    for first, last in ((130, 131), (40, 77)):
        assert same_bits(batch.run(cpu, [(0, first, last)], {}), whole[first:last])


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_bits_do_not_depend_on_pages_or_threads(best, dtype):
    made = []
    for page in (1, 16, 64):
        for threads in (1, 2, 3):
            batch = Batch([601], page=page, dtype=dtype, cache=dtype)
            pieces = ([(0, 0, 601)], [(0, 600, 601)])
            made.append([batch.run(best(threads=threads), p, {}) for p in pieces])
    assert all(same_bits(a, b) for other in made for a, b in zip(made[0], other, strict=True))
    assert same_bits(made[0][0][600:], made[0][1])


def test_a_token_that_sees_nothing_gives_zeros(each):
    batch = Batch([20, 300])
    lens = np.array([0, 300], np.int32)
    y = batch.run(each, [(0, 0, 3), (1, 299, 300)], {}, lens)
    assert not y[:3].any() and relative(y[3:], dense(batch, 1, 299, 300, {})) < 2e-6


def test_no_tokens(best):
    for dtype in (F32, BF16):
        batch = Batch([4], dtype=dtype, cache=dtype)
        assert batch.run(best(), [(0, 2, 2)], {}).shape == (0, 6, 64)


def test_pages_outside_of_the_cache_are_refused(cpu):
    batch = Batch([20])
    batch.table[0, 1] = 99
    with pytest.raises(Exception, match="a page is outside of the cache"):
        batch.run(cpu, [(0, 0, 20)], {})


@pytest.mark.parametrize("cache", [F32, BF16, np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_cache_write_rounds_and_skips(each, dtype, cache):
    k, v = (normal(i, 4, 2, 24, dtype=dtype) for i in (1, 2))
    view = each.cache(np.zeros((3, 4, 2, 24), cache), np.zeros((3, 4, 2, 24), cache))
    slots = np.array([5, -1, 11, 0])
    launch, _ = each.prepared("kv_write", {"cache": view, "k": k, "v": v, "slots": slots}, {})
    launch()
    for tensor, source in ((view.k, k), (view.v, v)):
        wanted = np.zeros((12, 2, 24), cache)
        wanted[[5, 11, 0]] = source[[0, 2, 3]].astype(np.float32).astype(cache)
        assert same_bits(each.get(tensor).reshape(12, 2, 24), wanted)


def test_copied_pages(cpu):
    k, v = normal(1, 5, 4, 2, 8), normal(2, 5, 4, 2, 8)
    view = cpu.cache(k, v)
    given = {"cache": view, "sources": np.array([1, 4]), "targets": np.array([2, 0])}
    cpu.prepared("kv_copy_pages", given, {})[0]()
    for tensor, source in ((view.k, k), (view.v, v)):
        assert same_bits(cpu.get(tensor), source[[4, 1, 1, 3, 4]])


@pytest.mark.parametrize(("lengths", "tokens"), [((700,), (300,)), ((2100, 1030), (1, 1))])
@pytest.mark.parametrize("changes", [{}, {"window": 90}, {"softcap": 4.0}, {"causal": False}])
def test_long_contexts_in_bfloat16(each, lengths, tokens, changes):
    """Beyond one tile of queries, one span of positions and one block of keys."""
    ragged, heads = Ragged(tokens, lengths, 16), Heads(9, 3, 64)
    inputs = attention_inputs(draw("long"), ragged, heads)
    case = Case("paged_attention", "long", inputs, {"scale": 0.125, **changes})
    case = case.with_dtype(DType.BFLOAT16)
    with place(each.chip, case.op, case.inputs, case.attrs) as placed:
        launch = placed.prepare(each.chip.operators.of(case.op)[0])
        placed.poison()
        launch()
        verdict = check_case(case, placed.outcome())
        assert verdict.ok and verdict.conclusive and placed.damaged() is None, verdict.text
