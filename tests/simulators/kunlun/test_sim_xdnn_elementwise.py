"""The simulated elementwise operators against numpy, for every dtype that they are made for."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import erf

import numpy as np
import pytest
from sim_xdnn_card import (
    DTYPES,
    REAL,
    Card,
    Out,
    Same,
    assert_close,
    assert_same,
    instances,
    numbers,
    started_card,
    wide,
)

LENGTHS = (1, 7, 512, 1541)
"""Around the 512 elements that a kernel converts at a time."""


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


UNARY: dict[str, Callable] = {
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
}
ACTIVATIONS: dict[str, Callable] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2))),
    "approximate_gelu": gelu_tanh,
}


def each(*names: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names for kind in instances(name)]


@pytest.mark.parametrize(("name", "kind"), each(*UNARY))
def test_unary(card: Card, name: str, kind: str) -> None:
    low = 0.1 if name in ("log", "sqrt", "rsqrt") else -3.0
    for length in LENGTHS:
        x = numbers(kind, length, low=low)
        found = card.call(name, kind, x, Out((length,)), length).output
        assert_close(found, UNARY[name](wide(x).astype(np.float64)))


@pytest.mark.parametrize(("name", "kind"), each(*ACTIVATIONS))
def test_activation(card: Card, name: str, kind: str) -> None:
    x = numbers(kind, 1541, low=-9.0, high=9.0)
    found = card.call(name, kind, x, Out((1541,)), 1541, None, None).output
    assert_close(found, ACTIVATIONS[name](wide(x).astype(np.float64)))


def test_elementwise_works_in_place(card: Card) -> None:
    x = numbers("bfloat16", 700)
    found = card.call("exp", "bfloat16", x, Same(0), 700).output
    assert_close(found, np.exp(wide(x)))


@pytest.mark.parametrize("kind", instances("round"))
def test_round_takes_halves_to_even(card: Card, kind: str) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.49, 6e4], DTYPES[kind])
    found = card.call("round", kind, x, Out((7,)), 7, 0).output
    assert_same(found, np.round(wide(x)).astype(x.dtype))
    tenths = np.array([0.25, 0.75, -1.26], DTYPES[kind])
    found = card.call("round", kind, tenths, Out((3,)), 3, 1).output
    assert_close(found, np.array([0.2, 0.8, -1.3]))


@pytest.mark.parametrize("kind", instances("scale"))
def test_scale_before_and_after(card: Card, kind: str) -> None:
    x = numbers(kind, 600)
    for after in (True, False):
        found = card.call("scale", kind, x, Out((600,)), 600, after, 2.5, -1.0).output
        exact = wide(x) * 2.5 - 1.0 if after else (wide(x) - 1.0) * 2.5
        if kind in REAL:
            assert_close(found, exact)
        else:
            assert_same(found, np.trunc(exact).astype(x.dtype))


@pytest.mark.parametrize("kind", instances("clip"))
def test_clip(card: Card, kind: str) -> None:
    x = numbers(kind, 600)
    found = card.call("clip", kind, x, Out((600,)), 600, -1, 2).output
    assert_same(found, np.clip(x, np.array(-1, x.dtype), np.array(2, x.dtype)))


@pytest.mark.parametrize(("name", "kind"), each("isnan", "isfinite"))
def test_tests_of_floats(card: Card, name: str, kind: str) -> None:
    x = np.array([0.0, np.nan, np.inf, -np.inf, 1.0, -np.nan], DTYPES[kind])
    assert_same(card.call(name, kind, x, Out((6,)), 6).output, getattr(np, name)(wide(x)))


def test_logical_operators_read_any_byte_as_a_truth(card: Card) -> None:
    a = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    b = np.array([0, 0, 4, 1], np.uint8).view(np.bool_)
    truths = [a.view(np.uint8) != 0, b.view(np.uint8) != 0]
    assert_same(card.call("logical_not", "bool", a, Out((4,)), 4).output, ~truths[0])
    for name in ("logical_and", "logical_or"):
        found = card.call(name, "bool", a, b, Out((4,)), 4).output
        assert_same(found, getattr(np, name)(*truths))


@pytest.mark.parametrize("kind", instances("constant"))
def test_constant(card: Card, kind: str) -> None:
    found = card.call("constant", kind, Out((77,)), 77, 1).output
    assert_same(found, np.ones(77, DTYPES[kind]))


@pytest.mark.parametrize("kind", instances("range"))
def test_range(card: Card, kind: str) -> None:
    found = card.call("range", kind, Out((9,)), 5, -3, 9).output
    assert_same(found, np.arange(5, 5 - 27, -3).astype(DTYPES[kind]))


@pytest.mark.parametrize("kind", instances("copy"))
def test_copy(card: Card, kind: str) -> None:
    x = numbers(kind, 999)
    assert_same(card.call("copy", kind, x, Out((999,)), 999).output, x)


@pytest.mark.parametrize("kinds", instances("cast"))
def test_cast(card: Card, kinds: str) -> None:
    source, target = kinds.split(",")
    x = numbers(source, 1025, low=0.0 if target == "uint8_t" else -3.0)
    found = card.call("cast", kinds, x, Out((1025,)), 1025).output
    assert_same(found, wide(x).astype(DTYPES[target]))


def test_cast_rounds_to_nearest_even_in_16_bits(card: Card) -> None:
    base = np.array([1.0, 0.3, 65504.0, 6e-8, 1e-7, 3e38, 1e5, 1e-9], np.float32)
    steps = np.concatenate([base, np.nextafter(base, 9e9), base + base / 2048, base + base / 256])
    x = np.concatenate([steps, -steps, np.array([np.nan, np.inf, -np.inf], np.float32)])
    for kind in ("float16", "bfloat16"):
        found = card.call("cast", f"float,{kind}", x, Out(x.shape), x.size).output
        with np.errstate(over="ignore"):
            assert_same(found, x.astype(DTYPES[kind]))
        back = card.call("cast", f"{kind},float", found, Out(x.shape), x.size).output
        assert_same(back, found.astype(np.float32))


def test_every_float16_converts_both_ways(card: Card) -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    widened = card.call("cast", "float16,float", every, Out(every.shape), every.size).output
    assert_same(widened, every.astype(np.float32))
    narrowed = card.call("cast", "float,float16", widened, Out(every.shape), every.size).output
    assert_same(narrowed, every)


def test_cast_to_integers_truncates_and_stays_in_range(card: Card) -> None:
    x = np.array([2.9, -2.9, 300.0, -300.0, 1e20, -1e20, np.nan, 0.0], np.float32)
    for kind in ("int8_t", "uint8_t", "int32_t", "int64_t"):
        limits = np.iinfo(DTYPES[kind])
        exact = [int(v) if np.isfinite(v) else 0 for v in np.trunc(x)]
        wanted = np.array([min(max(v, limits.min), limits.max) for v in exact], DTYPES[kind])
        found = card.call("cast", f"float,{kind}", x, Out((8,)), 8).output
        assert found.tolist() == wanted.tolist()
    assert card.call("cast", "float,bool", x, Out((8,)), 8).output.tolist() == [True] * 7 + [False]


BINARY: dict[str, Callable] = {
    "broadcast_add": np.add,
    "broadcast_sub": np.subtract,
    "broadcast_mul": np.multiply,
    "broadcast_div": np.divide,
    "broadcast_max": np.maximum,
    "broadcast_min": np.minimum,
    "broadcast_pow": np.power,
    "broadcast_equal": np.equal,
    "broadcast_less_than": np.less,
    "broadcast_less_equal": np.less_equal,
}
SHAPES = (
    ((600,), (600,)),
    ((3, 5, 7), (3, 5, 7)),
    ((3, 5, 7), (7,)),
    ((3, 5, 7), (1,)),
    ((1,), (4, 3)),
    ((3, 1, 7), (3, 5, 7)),
    ((3, 5, 1), (1, 5, 7)),
    ((5, 1), (1, 6)),
    ((2, 1, 3, 1), (4, 1, 2)),
    ((1, 1), (1,)),
)


def exact(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if name == "broadcast_div" and x.dtype.kind == "i":
        return np.trunc(x / y).astype(x.dtype)
    return BINARY[name](wide(x), wide(y))


@pytest.mark.parametrize(("name", "kind"), each(*BINARY))
def test_binary_broadcasts(card: Card, name: str, kind: str) -> None:
    low = 0.2 if name in ("broadcast_pow", "broadcast_div") else -3.0
    for xshape, yshape in SHAPES:
        x, y = numbers(kind, *xshape, low=low), numbers(kind, *yshape, low=low)
        wanted = exact(name, x, y)
        found = card.call(name, kind, x, y, Out(wanted.shape), xshape, yshape).output
        if wanted.dtype == np.bool_ or kind not in REAL:
            assert_same(found, wanted)
        else:
            assert_close(found, wanted)


@pytest.mark.parametrize("kind", REAL)
def test_sums_and_products_round_once(card: Card, kind: str) -> None:
    x, y = numbers(kind, 5000), numbers(kind, 5000)[::-1].copy()
    for name in ("broadcast_add", "broadcast_sub", "broadcast_mul"):
        found = card.call(name, kind, x, y, Out((5000,)), [5000], [5000]).output
        assert_same(found, BINARY[name](wide(x), wide(y)).astype(x.dtype))


def test_integers_wrap(card: Card) -> None:
    top = np.array([2**31 - 1], np.int32)
    found = card.call("broadcast_add", "int32_t", top, top, Out((1,)), [1], [1]).output
    assert found.tolist() == [-2]


def test_a_nan_compares_with_nothing(card: Card) -> None:
    x = np.array([np.nan, 1.0], np.float32)
    for name in ("broadcast_equal", "broadcast_less_than", "broadcast_less_equal"):
        found = card.call(name, "float", x, x, Out((2,)), [2], [2]).output
        assert found.tolist() == BINARY[name](x, x).tolist()


@pytest.mark.parametrize("kind", instances("select"))
def test_select_broadcasts_the_condition(card: Card, kind: str) -> None:
    x, y = numbers(kind, 4, 3, 5), numbers(kind, 4, 3, 5)[::-1].copy()
    for shape in ((4, 3, 5), (5,), (3, 1), (4, 1, 1), (1,)):
        condition = numbers("bool", *shape)
        arguments = (condition, x, y, Out(x.shape), shape, x.shape)
        assert_same(card.call("select", kind, *arguments).output, np.where(condition, x, y))


@pytest.mark.parametrize("kind", instances("as_strided"))
def test_as_strided(card: Card, kind: str) -> None:
    x = numbers(kind, 200)
    views = {
        (4, 5): ((5, 1), 0),
        (5, 4): ((1, 5), 3),
        (3, 2, 4): ((0, 7, 2), 11),
        (6,): ((33,), 2),
        (2, 1, 3): ((100, 9, 0), 99),
    }
    for shape, (strides, offset) in views.items():
        bytes_ = tuple(s * x.itemsize for s in strides)
        wanted = np.lib.stride_tricks.as_strided(x[offset:], shape, bytes_)
        found = card.call("as_strided", kind, x, Out(shape), shape, strides, offset).output
        assert_same(found, wanted)


@pytest.mark.parametrize("kind", instances("transpose"))
def test_transpose(card: Card, kind: str) -> None:
    x = numbers(kind, 2, 3, 4, 5)
    for permute in ((3, 2, 1, 0), (0, 2, 1, 3), (1, 0, 2, 3), (0, 1, 2, 3)):
        wanted = np.transpose(x, permute)
        found = card.call("transpose", kind, x, Out(wanted.shape), x.shape, permute).output
        assert_same(found, wanted)


@pytest.mark.parametrize("kind", instances("broadcast"))
def test_broadcast(card: Card, kind: str) -> None:
    for small, big in pairwise([(1,), (3, 1), (2, 3, 1), (2, 3, 5)]):
        x = numbers(kind, *small)
        found = card.call("broadcast", kind, x, Out(big), small, big).output
        assert_same(found, np.broadcast_to(x, big))
