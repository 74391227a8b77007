"""Simulated reductions, softmax, gathers and sorts against numpy, for each dtype they have."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from sim_xdnn_card import (
    DTYPES,
    REAL,
    Card,
    Halves,
    Out,
    Same,
    assert_close,
    assert_same,
    instances,
    numbers,
    started_card,
    wide,
)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


REDUCE: dict[str, Callable] = {
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_all": np.all,
    "reduce_any": np.any,
}


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in REDUCE for k in instances(n)])
def test_reduce(card: Card, name: str, kind: str) -> None:
    x = numbers(kind, 4, 3, 33)
    for rdims in ((2,), (0,), (1,), (0, 2), (2, 1), (0, 1, 2)):
        reduced = REDUCE[name](wide(x).astype(np.float64) if kind in REAL else x, axis=rdims)
        wanted = np.asarray(reduced)
        shape = wanted.shape or (1,)
        found = card.call(name, kind, x, Out(shape), x.shape, rdims).output
        if kind in REAL:
            assert_close(found, wanted.reshape(shape), slack=2e-5)
        else:
            assert_same(found, wanted.reshape(shape).astype(x.dtype))


def test_reduce_flags_read_any_byte_as_a_truth(card: Card) -> None:
    x = np.array([[2, 255], [0, 3]], np.uint8).view(np.bool_)
    assert card.call("reduce_all", "bool", x, Out((2,)), [2, 2], [1]).output.tolist() == [1, 0]


def test_long_sums_keep_float32_accuracy(card: Card) -> None:
    x = np.full((1, 1 << 20), 0.1, np.float32)
    found = card.call("reduce_sum", "float", x, Out((1,)), x.shape, [1]).output
    np.testing.assert_allclose(found, x.astype(np.float64).sum(), rtol=1e-5)
    half = np.ones((1, 5000), DTYPES["bfloat16"])  # a bfloat16 sum would stop at 256
    assert card.call("reduce_sum", "bfloat16", half, Out((1,)), half.shape, [1]).output == 4992


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n in ("softmax", "log_softmax") for k in instances(n)]
)
def test_softmax(card: Card, name: str, kind: str) -> None:
    x = numbers(kind, 3, 130, 4, low=-30.0, high=60.0)
    for axis in (0, 1, 2):
        exact = wide(x).astype(np.float64)
        exact -= exact.max(axis, keepdims=True)
        logs = exact - np.log(np.exp(exact).sum(axis, keepdims=True))
        found = card.call(name, kind, x, Out(x.shape), x.shape, axis).output
        assert_close(found, logs if name == "log_softmax" else np.exp(logs), slack=2e-5)


@pytest.mark.parametrize("kind", instances("cumsum"))
def test_cumsum(card: Card, kind: str) -> None:
    x = numbers(kind, 3, 40, 2)
    for axis in (0, 1, 2):
        forward = np.cumsum(x, axis, dtype=x.dtype)
        backward = np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)
        for reverse, exclusive, wanted in (
            (False, False, forward),
            (True, False, backward),
            (False, True, forward - x),
            (True, True, backward - x),
        ):
            answer = card.call("cumsum", kind, x, Out(x.shape), x.shape, reverse, exclusive, axis)
            assert_close(answer.output, wanted, slack=2e-5)


@pytest.mark.parametrize("kinds", instances("argmax"))
def test_argmax_takes_the_first_of_equals(card: Card, kinds: str) -> None:
    x = np.round(numbers(kinds.split(",")[0], 5, 50, 3))
    for axis in (0, 1, 2):
        wanted = np.argmax(x, axis)
        found = card.call("argmax", kinds, x, Out(wanted.shape), x.shape, axis).output
        assert_same(found, wanted)


@pytest.mark.parametrize("kinds", instances("gather"))
def test_gather(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    x = numbers(kind, 4, 6, 5)
    for axis in (0, 1, 2):
        index = np.array([3, 0, 3, 1], DTYPES[index_kind])
        wanted = np.take(x, index, axis)
        arguments = (x, index, Out(wanted.shape), x.shape, 4, axis)
        assert_same(card.call("gather", kinds, *arguments).output, wanted)


@pytest.mark.parametrize("kinds", instances("scatter"))
def test_scatter_writes_rows_and_leaves_others(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    target, rows = numbers(kind, 7, 9), numbers(kind, 3, 9)
    index = np.array([6, 0, 2], DTYPES[index_kind])
    wanted = target.copy()
    wanted[index] = rows
    for cpu, xpu in ((index, index), (None, index), (index, None)):
        answer = card.call("scatter", kinds, rows, target, Halves(cpu, xpu), 7, 9, True)
        assert_same(answer.output, wanted)


@pytest.mark.parametrize("kinds", instances("index_add"))
def test_index_add_adds_repeats(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    x, src = numbers(kind, 5, 8), numbers(kind, 4, 8)
    index = np.array([4, 0, 4, 2], DTYPES[index_kind])
    wanted = wide(x).copy()
    for row, place in enumerate(index):
        wanted[place] = wide((wanted[place] + 2 * wide(src[row])).astype(x.dtype))
    for out in (Out(x.shape), Same(0)):
        answer = card.call("index_add", kinds, x, src, out, index, x.shape, 4, 0, 2)
        found = answer.arrays[0 if isinstance(out, Same) else 2]
        assert (answer.status, answer.waited) == (0, 0)
        assert_close(found, wanted)


def test_index_add_along_a_later_axis(card: Card) -> None:
    x, src = numbers("float", 3, 4, 2), numbers("float", 3, 2, 2)
    index = np.array([3, 1], np.int32)
    wanted = x.copy()
    wanted[:, index] += src
    arguments = (x, src, Out(x.shape), index, x.shape, 2, 1, 1.0)
    assert_same(card.call("index_add", "float,int32_t", *arguments).arrays[2], wanted)


def test_index_add_makes_a_histogram(card: Card) -> None:
    index = np.array([0, 3, 3, 1, 3], np.int32)
    zeros, ones = np.zeros(4, np.int32), np.ones(5, np.int32)
    arguments = (zeros, ones, Out((4,)), index, [4], 5, 0, 1)
    found = card.call("index_add", "int32_t,int32_t", *arguments).arrays[2]
    assert found.tolist() == np.bincount(index, minlength=4).tolist()


@pytest.mark.parametrize("kinds", instances("embedding"))
def test_embedding_gives_zeros_outside_its_part(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    x = numbers(kind, 6, 10)
    token = np.array([100, 105, 99, 106, 103], DTYPES[index_kind])
    wanted = np.stack([x[0], x[5], np.zeros_like(x[0]), np.zeros_like(x[0]), x[3]])
    answer = card.call("embedding", kinds, x, token, Out((5, 10)), 6, 10, 5, -1, 100)
    assert_same(answer.output, wanted)
    wanted[4] = 0
    answer = card.call("embedding", kinds, x, token, Out((5, 10)), 6, 10, 5, 103, 100)
    assert_same(answer.output, wanted)


def shuffled(kind: str, rows: int, length: int) -> np.ndarray:
    """Whole numbers with many ties."""
    x = np.random.default_rng(length).integers(-20, 20, (rows, length))
    return x.astype(DTYPES[kind])


@pytest.mark.parametrize("kinds", instances("stable_sort"))
def test_stable_sort_keeps_ties_in_order(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    x = shuffled(kind, 3, 301)
    for descending in (True, False):
        keys = -wide(x) if descending else wide(x)
        order = np.argsort(keys, axis=1, kind="stable")
        answer = card.call("stable_sort", kinds, x, Out(x.shape), Out(x.shape), 3, 301, descending)
        assert_same(answer.output, order.astype(DTYPES[index_kind]))
        assert_same(answer.arrays[1], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("kinds", instances("sort"))
def test_sort_is_right_and_visibly_not_stable(card: Card, kinds: str) -> None:
    kind, _ = kinds.split(",")
    x = shuffled(kind, 2, 200)
    for descending in (True, False):
        answer = card.call("sort", kinds, x, Out(x.shape), Out(x.shape), 2, 200, descending)
        order = answer.output
        ordered = np.sort(x, axis=1)
        assert_same(answer.arrays[1], ordered[:, ::-1] if descending else ordered)
        assert_same(np.take_along_axis(x, order.astype(np.int64), 1), answer.arrays[1])
        ties = answer.arrays[1][:, 1:] == answer.arrays[1][:, :-1]
        assert ties.any() and (np.diff(order.astype(np.int64), axis=1)[ties] < 0).all()


@pytest.mark.parametrize("kinds", instances("sorted_topk"))
def test_topk(card: Card, kinds: str) -> None:
    kind, index_kind = kinds.split(",")
    x = shuffled(kind, 4, 150)
    for largest in (True, False):
        order = np.argsort(-wide(x) if largest else wide(x), axis=1, kind="stable")
        for k in (1, 8, 150):
            places = order[:, :k].astype(DTYPES[index_kind])
            arguments = (x, Out((4, k)), Out((4, k)), 4, 150, k, largest, False)
            answer = card.call("sorted_topk", kinds, *arguments)
            assert_same(answer.output, places)
            assert_same(answer.arrays[1], np.take_along_axis(x, order[:, :k], 1))


def test_a_nan_counts_as_the_largest(card: Card) -> None:
    """What the card does is not known; that it is one order everywhere is what this shows."""
    x = np.array([[1.0, np.nan, np.inf, -2.0]], np.float32)
    assert card.call("argmax", "float,int64_t", x, Out((1,)), [1, 4], 1).output.tolist() == [1]
    top = card.call(
        "sorted_topk", "float,int32_t", x, Out((1, 2)), Out((1, 2)), 1, 4, 2, True, False
    )
    assert top.output.tolist() == [[1, 2]]
    both = (x, Out((1, 4)), Out((1, 4)), 1, 4)
    assert card.call("stable_sort", "float,int32_t", *both, True).output.tolist() == [[1, 2, 0, 3]]
    assert card.call("stable_sort", "float,int32_t", *both, False).output.tolist() == [[3, 0, 2, 1]]
    assert np.isnan(card.call("reduce_max", "float", x, Out((1,)), [1, 4], [1]).output[0])
