"""Attention of the simulated libraries against float64: scales, masks, pages and their guards."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_llm_card import (
    ABSENT,
    BOUND,
    DTYPES,
    INVALID_PARAM,
    KEXCEPTION,
    TYPES,
    Answer,
    Card,
    Pair,
    error,
    exact,
    made,
    started_card,
    values,
)

HEADS, KV, DIM, SIZE = 6, 2, 32, 8
SCALE = DIM**-0.5


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float = SCALE, causal: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """q [n, heads, dim] over k, v [m, kv heads, dim]: the result, and the sums' logarithms."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    if causal:
        n, m = len(q), len(k)
        late = np.arange(m)[None] > np.arange(n)[:, None] + m - n
        scores = np.where(late, -np.inf, scores)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", weights / total, v)
    return out, (np.log(total) + largest)[..., 0]


def split(x: np.ndarray, lod: Sequence[int]) -> list[np.ndarray]:
    return [exact(x[a:b]) for a, b in pairwise(lod)]


Q_LOD, K_LOD = [0, 3, 4, 9], [0, 7, 8, 13]


def varlen(card: Card, kind: str = "float", **given: Any) -> Answer:
    q, k, v = (
        values(kind, n, h, DIM, seed=s) for s, (n, h) in enumerate([(9, HEADS), (13, KV), (13, KV)])
    )
    q_lod, k_lod = given.get("q_lod", Pair(Q_LOD)), given.get("k_lod", Pair(K_LOD))
    lse = np.full((3, HEADS, 5), 77, np.float32)
    arrays = [q, k, v, made(kind, *q.shape), lse, q_lod, k_lod]
    shape = [given.get("max_q", 5), 7, given.get("heads", HEADS), KV, given.get("dim", DIM)]
    numbers = [TYPES[kind], given.get("compute", 0), len(q_lod), len(k_lod), *shape]
    return card.call(
        "attention", arrays, [*numbers, given.get("causal", 1)], [given.get("scale", 0)]
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_ragged_attention(card: Card, kind: str, causal: int) -> None:
    for scale in (0.0, 0.3):
        answer = varlen(card, kind, causal=causal, scale=scale)
        parts = zip(
            split(answer.at(0), Q_LOD),
            split(answer.at(1), K_LOD),
            split(answer.at(2), K_LOD),
            strict=True,
        )
        wanted = [attended(*part, scale or SCALE, bool(causal)) for part in parts]
        assert error(answer.at(3), np.concatenate([out for out, _ in wanted])) < 2 * BOUND[kind]
        for i, (out, logs) in enumerate(wanted):
            found = answer.at(4)[i, :, : len(out)]
            assert np.allclose(found, logs, rtol=1e-5, atol=1e-5)
            assert (answer.at(4)[i, :, len(out) :] == 77).all()


def test_the_compute_type_of_attention_shows(card: Card) -> None:
    exactly = varlen(card).at(3)
    for compute in (1, 3):
        assert 1e-5 < error(varlen(card, compute=compute).at(3), exact(exactly)) < 2e-3


BROKEN: dict[str, dict[str, Any]] = {
    "more queries than keys": {"q_lod": Pair(K_LOD), "k_lod": Pair(Q_LOD), "max_q": 7},
    "an empty sequence": {"q_lod": Pair([0, 0, 4, 9])},
    "longer than the maximum": {"max_q": 4},
    "other counts": {"k_lod": Pair([0, 13])},
    "a head size that the vendor has not": {"dim": 24},
    "heads that are no multiple": {"heads": 5},
    "no host half": {"q_lod": Pair(None, Q_LOD)},
}


@pytest.mark.parametrize("what", BROKEN)
def test_rules_of_ragged_attention(card: Card, what: str) -> None:
    assert varlen(card, **BROKEN[what]).status == INVALID_PARAM


class Pages:
    """Keys and values on scattered pages, 1 row of the table a sequence."""

    def __init__(self, kind: str, lengths: Sequence[int]) -> None:
        rng = np.random.default_rng(3)
        pages = 3
        self.table = rng.permutation(12).astype(np.int32)[: 4 * pages].reshape(4, pages)
        self.caches = [values(kind, 12, KV, SIZE, DIM, seed=s) for s in (1, 2)]
        self.lengths = list(lengths)

    def of(self, cache: np.ndarray, row: int, length: int) -> np.ndarray:
        """[length, kv heads, dim] of one row."""
        blocks = exact(cache[self.table[row]]).transpose(0, 2, 1, 3)
        return blocks.reshape(-1, KV, DIM)[:length]

    def wanted(self, q: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
        found = []
        for part, row, length in zip(q, rows, self.lengths, strict=True):
            k, v = (self.of(cache, row, length) for cache in self.caches)
            found.append(attended(part, k, v)[0])
        return np.concatenate(found)


def decode(
    card: Card, kind: str, pages: Pages, rows: Pair, narrow: int = 0, **given: Any
) -> Answer:
    batch = len(pages.lengths)
    q = values(kind, batch, HEADS * DIM)
    lengths = given.get("lengths", Pair(pages.lengths))
    arrays = [q, *pages.caches, made(kind, *q.shape), pages.table, lengths, ABSENT, rows]
    numbers = [batch, 12, 4, batch, HEADS, KV, given.get("dim", DIM), 0, 0, -1, SIZE, 3]
    counts = [len(lengths), 0, len(rows)]
    return card.call("decoder_attention", arrays, [TYPES[kind], narrow, *numbers, *counts])


@pytest.mark.parametrize("kind", TYPES)
def test_decoding_over_pages(card: Card, kind: str) -> None:
    """Rows of the table are those that the third list names, not those of the batch."""
    pages, rows = Pages(kind, [1, 17, 24]), [3, 0, 2]
    answer = decode(card, kind, pages, Pair(rows))
    q = [x.reshape(1, HEADS, DIM) for x in exact(answer.at(0))]
    wanted = pages.wanted(q, rows).reshape(3, -1)
    assert error(answer.at(3), wanted) < 2 * BOUND[kind]
    assert error(answer.at(3), pages.wanted(q, [0, 1, 2]).reshape(3, -1)) > 0.1


def test_decoding_in_the_narrow_type_is_less_exact(card: Card) -> None:
    pages = Pages("bfloat16", [24, 24])
    exactly, narrow = (decode(card, "bfloat16", pages, Pair([0, 1]), n).at(3) for n in (0, 1))
    assert 0 < error(narrow, exact(exactly)) < 1e-2


DECODER: dict[str, dict[str, Any]] = {
    "no rows of the table": {"rows": ABSENT},
    "a row beyond the table": {"rows": Pair([0, 4])},
    "longer than its pages": {"lengths": Pair([5, 25])},
    "a sequence of no token": {"lengths": Pair([5, 0])},
    "one length too few": {"lengths": Pair([5])},
}


@pytest.mark.parametrize("what", DECODER)
def test_rules_of_decoding(card: Card, what: str) -> None:
    given = dict(DECODER[what])
    rows = given.pop("rows", Pair([0, 1]))
    assert decode(card, "float", Pages("float", [5, 6]), rows, **given).status == INVALID_PARAM


@pytest.mark.parametrize(("batch", "status"), [(1023, 0), (1024, INVALID_PARAM)])
def test_decoding_takes_fewer_than_1024_sequences(card: Card, batch: int, status: int) -> None:
    rows = Pair([i % 4 for i in range(batch)])
    assert decode(card, "float", Pages("float", [3] * batch), rows).status == status


@pytest.mark.parametrize("change", ["table", "device length"])
def test_what_only_the_device_sees_is_a_kernel_exception(tmp_path: Path, change: str) -> None:
    with started_card(tmp_path) as card:
        pages, given = Pages("float", [17]), {}
        if change == "table":
            pages.table[0, 2] = -1
        else:
            given = {"lengths": Pair([17], [16])}
        answer = decode(card, "float", pages, Pair([0]), **given)
        assert (answer.status, answer.waited) == (0, KEXCEPTION)


def context(card: Card, kind: str, q_lod: list[int], k_lod: list[int], **given: Any) -> Answer:
    """Without `pages` keys and values are this call's."""
    pages, batch = given.get("pages"), len(q_lod) - 1
    q = values(kind, q_lod[-1], HEADS * DIM)
    longest = max(b - a for a, b in pairwise(q_lod))
    longest_kv = max(b - a for a, b in pairwise(k_lod))
    fresh = [values(kind, given.get("kv_rows", k_lod[-1]), KV * DIM, seed=s) for s in (1, 2)]
    kv = pages.caches if pages else fresh
    table = pages.table if pages else None
    pairs = [given.get("q_pair", Pair(q_lod)), Pair(k_lod), Pair(list(range(batch)))]
    arrays = [q, *kv, made(kind, *q.shape), table, *pairs]
    prefill = given.get("prefill", longest if pages else -1)
    sizes = [given.get("longest", longest), given.get("longest_kv", longest_kv), prefill]
    numbers = [len(q), len(kv[0]), 4, batch, HEADS, KV, DIM, *sizes, SIZE, 3]
    return card.call("context_attention", arrays, [TYPES[kind], *numbers, *map(len, pairs)])


@pytest.mark.parametrize("kind", TYPES)
def test_context_attention_multiplies_by_the_root_itself(card: Card, kind: str) -> None:
    lod = [0, 5, 6, 13]
    answer = context(card, kind, lod, lod)
    q, k, v = (answer.at(i).reshape(-1, h, DIM) for i, h in ((0, HEADS), (1, KV), (2, KV)))
    parts = list(zip(split(q, lod), split(k, lod), split(v, lod), strict=True))
    wanted, unscaled = (
        np.concatenate([attended(*part, scale)[0] for part in parts]).reshape(13, -1)
        for scale in (SCALE, 1.0)
    )
    assert error(answer.at(3), wanted) < 2 * BOUND[kind]
    assert error(answer.at(3), unscaled) > 0.1


@pytest.mark.parametrize("kind", TYPES)
def test_context_attention_after_a_cached_prefix(card: Card, kind: str) -> None:
    q_lod, pages = [0, 4, 5, 8], Pages(kind, [20, 1, 9])
    answer = context(card, kind, q_lod, [0, 20, 21, 30], pages=pages)
    wanted = pages.wanted(split(answer.at(0).reshape(-1, HEADS, DIM), q_lod), [0, 1, 2])
    assert error(answer.at(3), wanted.reshape(8, -1)) < 2 * BOUND[kind]


def test_prefix_and_decoder_agree_token_by_token(card: Card) -> None:
    """The same cache read at once and one token a call gives the same."""
    pages = Pages("float", [24])
    at_once = context(card, "float", [0, 1], [0, 24], pages=pages).at(3)
    alone = decode(card, "float", pages, Pair([0])).at(3)
    assert np.array_equal(at_once, alone)


CONTEXT: dict[str, dict[str, Any]] = {
    "longer than max_valid_seqlen": {"longest": 3},
    "longer than max_kv_valid_seqlen": {"longest_kv": 19},
    "prefill_len of another length": {"prefill": 3},
    "fewer rows of q than the list says": {"q_pair": Pair([0, 4, 6])},
    "one sequence too many": {"q_pair": Pair([0, 4, 5, 5])},
}


@pytest.mark.parametrize("what", CONTEXT)
def test_rules_of_context_attention(card: Card, what: str) -> None:
    pages = Pages("float", [20, 5])
    assert context(card, "float", [0, 4, 5], [0, 20, 25], pages=pages).status == 0
    answer = context(card, "float", [0, 4, 5], [0, 20, 25], pages=pages, **CONTEXT[what])
    assert answer.status == INVALID_PARAM


def test_without_a_prefix_both_lists_are_the_same(card: Card) -> None:
    assert context(card, "float", [0, 4], [0, 6]).status == INVALID_PARAM
    assert context(card, "float", [0, 4], [0, 4], kv_rows=5).status == INVALID_PARAM


def speculate(card: Card, pages: Pages, rows: list[int], qlen: int, window: int) -> Answer:
    q = values("float", len(rows) * qlen, HEADS, DIM)
    lists = [Pair(pages.lengths), Pair(rows)]
    arrays = [q, *pages.caches, made("float", *q.shape), pages.table, *lists]
    numbers = [*map(len, lists), 4, qlen, HEADS, DIM, KV, SIZE, 3, window]
    return card.call("speculative", arrays, numbers, [SCALE])


def test_last_tokens_over_pages_ignore_the_window(card: Card) -> None:
    pages, rows = Pages("float", [9, 24]), [2, 1]
    answer = speculate(card, pages, rows, 3, -1)
    wanted = pages.wanted([exact(answer.at(0)[:3]), exact(answer.at(0)[3:])], rows)
    assert error(answer.at(3), wanted) < 4e-6
    windowed = speculate(card, pages, rows, 3, 4).at(3)
    assert np.array_equal(windowed, answer.at(3))
    assert speculate(card, pages, rows, 10, -1).status == INVALID_PARAM


@pytest.mark.parametrize("kind", TYPES)
def test_splitting_a_joint_projection(card: Card, kind: str) -> None:
    """The queries go to scratch of the context, from where the test copies them."""
    qkv = values(kind, 3, (HEADS + 2 * KV) * DIM)
    arrays = [qkv, made(kind, 3, KV * DIM), made(kind, 3, KV * DIM), made(kind, 3, HEADS * DIM)]
    answer = card.call("split_joint", arrays, [TYPES[kind], 3, HEADS, KV, DIM])
    q, k, v = np.split(qkv, [HEADS * DIM, (HEADS + KV) * DIM], axis=1)
    for index, part in ((3, q), (1, k), (2, v)):
        assert answer.at(index).dtype == DTYPES[kind]
        assert np.array_equal(answer.at(index), part)
