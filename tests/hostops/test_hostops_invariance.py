"""One token's result does not depend, bit by bit, on what else is in the call."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from anychip.hostops import CacheArrays
from anychip.hostops.attention import paged_attention
from anychip.hostops.matrix import rows_by_matrix
from anychip.hostops.network import add_rms_norm, rms_norm, silu_and_mul
from anychip.hostops.primitives import KERNELS
from anychip.hostops.sampling import KERNELS as SAMPLING
from anychip.hostops.sampling import sample

SHAPES = [(960, 576), (576, 1536), (1000, 96), (33, 65), (1, 7), (2, 1), (512, 64), (4099, 48)]
TOKENS, HEADS, GROUPS, DIM, LENGTH = 150, 6, 2, 16, 150


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_chunks(function, x, size):
    return np.concatenate([function(x[i : i + size]) for i in range(0, len(x), size)])


@pytest.mark.parametrize("weight_type", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_product_of_a_row(n, k, weight_type):
    x, weight = normal(37, k), normal(n, k, seed=1).astype(weight_type)
    whole = rows_by_matrix(x, weight)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    assert np.linalg.norm(whole - exact) <= 1e-5 * np.linalg.norm(exact)
    assert np.linalg.norm(whole[::-1] - exact) > 0.1 * np.linalg.norm(exact)
    for size in (1, 5, 8, 16):
        assert np.array_equal(in_chunks(lambda part: rows_by_matrix(part, weight), x, size), whole)


def test_product_of_no_rows_and_of_no_columns():
    assert rows_by_matrix(normal(0, 8), normal(3, 8)).shape == (0, 3)
    assert not rows_by_matrix(normal(2, 0), normal(3, 0)).any()


def test_strided_matrices_are_read_alike():
    x, wide = normal(3, 8), normal(20, 24)
    for matrix in (wide[:, 8:16], wide[::2, :8], wide[:8].T, np.broadcast_to(wide[:1, :8], (5, 8))):
        assert np.array_equal(rows_by_matrix(x, matrix), rows_by_matrix(x, matrix.copy()))


def one_output(kernel, **attrs):
    def function(x, width=None):
        y = np.empty((len(x), width or x.shape[1]), np.float32)
        extra = {"sum": np.empty_like(x)}
        weight = normal(x.shape[1], seed=5)
        kernel({"x": x, "residual": x[:, ::-1], "weight": weight}, {"y": y, **extra}, attrs)
        return y

    return function


@pytest.mark.parametrize("kernel", [rms_norm, add_rms_norm])
@pytest.mark.parametrize("size", [1, 7, 16])
def test_norms(kernel, size):
    x, function = normal(40, 577), one_output(kernel, eps=1e-5)
    assert np.array_equal(in_chunks(function, x, size), function(x))


@pytest.mark.parametrize("size", [1, 7, 16])
def test_activation(size):
    x, function = normal(40, 2 * 33) * 4, one_output(silu_and_mul)
    assert np.array_equal(in_chunks(lambda part: function(part, 33), x, size), function(x, 33))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "silu", "gelu_tanh", "rsqrt", "log"])
def test_elementwise(name):
    x = np.abs(normal(40, 37)) + np.float32(0.1)
    function = one_output(KERNELS[name])
    assert np.array_equal(in_chunks(function, x, 1), function(x))


def test_sums_do_not_see_zeros_in_between():
    x = normal(8, 200)
    padded = np.zeros((8, 457), np.float32)
    padded[:, 101:301] = x
    sums = [np.empty((8, 1), np.float32) for _ in range(2)]
    for source, target in zip((x, padded), sums, strict=True):
        KERNELS["reduce_sum"]({"x": source}, {"y": target}, {})
    assert np.array_equal(*sums)


def cache_of(page_size, seed=3):
    """The same keys and values whatever the page size; page 0 and what is unused is NaN."""
    pages = -(-LENGTH // page_size)
    table = np.random.default_rng(seed).permutation(pages) + 1
    halves = []
    for source in (10, 11):
        half = np.full((pages + 1, page_size, GROUPS, DIM), np.nan, np.float32)
        slots = table[np.arange(LENGTH) // page_size] * page_size
        slots += np.arange(LENGTH) % page_size
        half.reshape(-1, GROUPS, DIM)[slots] = normal(LENGTH, GROUPS, DIM, seed=source)
        halves.append(half)
    return CacheArrays(*halves), table.astype(np.int32)[None]


def attend(q, positions, page_size=16, **attrs):
    cache, table = cache_of(page_size)
    y = np.empty_like(q)
    inputs = {
        "q": q,
        "cache": cache,
        "page_table": table,
        "cu_q": np.array([0, len(q)], np.int32),
        "kv_lens": np.array([positions[-1] + 1], np.int32),
        "positions": positions,
        "token_rows": np.zeros(len(q), np.int32),
    }
    default = {"scale": 0.25, "causal": True, "window": 0, "softcap": 0.0}
    paged_attention(inputs, {"y": y}, {**default, **attrs})
    return y


@pytest.mark.parametrize("attrs", [{}, {"window": 70}, {"softcap": 2.0}])
def test_attention_of_a_token_over_chunks_and_page_sizes(attrs):
    q, positions = normal(TOKENS, HEADS, DIM, seed=7), np.arange(TOKENS, dtype=np.int32)
    whole = attend(q, positions, **attrs)
    assert np.isfinite(whole).all()
    for size in (1, 16, 23):
        for page_size in (1, 16, 64):
            parts = [
                attend(q[i : i + size], positions[i : i + size], page_size, **attrs)
                for i in range(0, TOKENS, size)
            ]
            assert np.array_equal(np.concatenate(parts), whole), (size, page_size)


def test_attention_of_a_sequence_in_a_batch():
    q, positions = normal(20, HEADS, DIM, seed=8), np.arange(20, dtype=np.int32)
    alone = attend(q, positions)
    cache, table = cache_of(16)
    y = np.empty((40, HEADS, DIM), np.float32)
    inputs = {
        "q": np.concatenate([normal(20, HEADS, DIM, seed=9), q]),
        "cache": cache,
        "page_table": np.concatenate([table, table]),
        "cu_q": np.array([0, 20, 40], np.int32),
        "kv_lens": np.array([100, 20], np.int32),
        "positions": np.concatenate([positions + 80, positions]),
        "token_rows": np.repeat([0, 1], 20).astype(np.int32),
    }
    attrs = {"scale": 0.25, "causal": True, "window": 0, "softcap": 0.0}
    paged_attention(inputs, {"y": y}, attrs)
    assert np.array_equal(y[20:], alone)
    assert not np.array_equal(y[:20], alone)


def drawn(logits, noise, **limits):
    rows = len(noise)
    full = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0, **limits}
    inputs = {name: np.full(rows, value, np.float32) for name, value in full.items()}
    inputs["top_k"] = inputs["top_k"].astype(np.int32)
    tokens = np.empty(rows, np.int32)
    batch = np.broadcast_to(logits, (rows, len(logits)))
    sample({**inputs, "logits": batch, "noise": noise}, {"tokens": tokens}, {})
    return tokens


def test_draws_follow_the_probabilities_and_the_limits():
    p = np.array([0.1, 0.4, 0.2, 0.3])
    logits, noise = np.log(p).astype(np.float32), np.linspace(0, 0.9999, 1000, dtype=np.float32)
    assert np.allclose(np.bincount(drawn(logits, noise), minlength=4) / 1000, p, atol=0.002)
    assert set(drawn(logits, noise, top_k=2)) == {1, 3}
    assert set(drawn(logits, noise, top_p=0.65)) == {1, 3}
    assert set(drawn(logits, noise, min_p=0.4)) == {1, 2, 3}
    assert set(drawn(logits, noise, temperature=0.0)) == {1}


def test_not_a_number_is_never_chosen():
    logits = np.array([np.nan, 1.0, 2.0, np.nan], np.float32)
    assert drawn(logits, np.zeros(1, np.float32), temperature=0.0).tolist() == [2]
    noise = np.linspace(0, 0.9999, 200, dtype=np.float32)
    assert set(drawn(logits, noise)) == {1, 2} == set(drawn(logits, noise, top_k=3, top_p=0.99))
    assert drawn(np.array([np.nan, -np.inf]), noise[:1], temperature=0.0).tolist() == [1]


@pytest.mark.parametrize("row", [[np.nan] * 4, [-np.inf] * 4, [1, np.inf, 2, np.nan]], ids=str)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_where_nothing_can_be_drawn_it_says_so(row):
    logits, noise = np.array(row, np.float32), np.array([0, 0.5], np.float32)
    assert drawn(logits, noise).tolist() == [-1, -1]
    assert drawn(logits, noise, top_k=2, top_p=0.5, min_p=0.1).tolist() == [-1, -1]


def test_nothing_but_nan_has_no_largest():
    tokens = np.empty(2, np.int32)
    for name, output in (("argmax", "y"), ("greedy", "tokens")):
        x = np.array([[np.nan, np.nan], [np.nan, 1]], np.float32)
        (KERNELS | SAMPLING)[name]({"x": x, "logits": x}, {output: tokens}, {})
        assert tokens.tolist() == [-1, 1]
