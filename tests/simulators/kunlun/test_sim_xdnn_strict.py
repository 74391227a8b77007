"""What the simulated operators refuse at the call, and what only the card sees."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_xdnn_card import (
    FUNCTIONS,
    INVALID_PARAM,
    KEXCEPTION,
    NOT_IMPLEMENT,
    RUNTIME_ERROR,
    SUCCESS,
    Card,
    Halves,
    Host,
    Out,
    Same,
    Shifted,
    instances,
    started_card,
)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


X = np.arange(24, dtype=np.float32)
I4 = np.array([0, 1, 2, 3], np.int32)
FLAGS = np.ones(24, np.bool_)
SHAPE, EMPTY = [4, 6], [4, 0]
EIGHT = [1, 1, 1, 1, 1, 1, 4, 6]
PAIR = Halves(I4, I4)

GOOD: dict[str, tuple[str, list[Any]]] = {
    "constant": ("float", [Out((24,)), 24, 1.0]),
    "range": ("float", [Out((24,)), 0.0, 1.0, 24]),
    "copy": ("float", [X, Out((24,)), 24]),
    "cast": ("float,int32_t", [X, Out((24,)), 24]),
    "exp": ("float", [X, Out((24,)), 24]),
    "round": ("float", [X, Out((24,)), 24, 0]),
    "scale": ("float", [X, Out((24,)), 24, True, 1.0, 0.0]),
    "clip": ("float", [X, Out((24,)), 24, 0.0, 1.0]),
    "isnan": ("float", [X, Out((24,)), 24]),
    "logical_not": ("bool", [FLAGS, Out((24,)), 24]),
    "logical_and": ("bool", [FLAGS, FLAGS, Out((24,)), 24]),
    "sigmoid": ("float", [X, Out((24,)), 24, None, None]),
    "as_strided": ("float", [X, Out((24,)), SHAPE, [6, 1], 0]),
    "transpose": ("float", [X, Out((24,)), SHAPE, [1, 0]]),
    "broadcast": ("float", [X, Out((4, 24)), [24], [4, 24]]),
    "broadcast_add": ("float", [X, X, Out((24,)), SHAPE, SHAPE]),
    "broadcast_equal": ("float", [X, X, Out((24,)), SHAPE, SHAPE]),
    "select": ("float", [FLAGS, X, X, Out((24,)), SHAPE, SHAPE]),
    "reduce_sum": ("float", [X, Out((4,)), SHAPE, [1]]),
    "softmax": ("float", [X, Out((24,)), SHAPE, 1]),
    "cumsum": ("float", [X, Out((24,)), SHAPE, False, False, 1]),
    "argmax": ("float,int64_t", [X, Out((4,)), SHAPE, 1]),
    "gather": ("float,int32_t", [X, I4, Out((4, 6)), SHAPE, 4, 0]),
    "scatter": ("float,int32_t", [X, Out((4, 6)), PAIR, 4, 6, True]),
    "index_add": ("float,int32_t", [X, X, Out((4, 6)), I4, SHAPE, 4, 0, 1.0]),
    "embedding": ("float,int32_t", [X, I4, Out((4, 6)), 4, 6, 4, -1, 0]),
    "sort": ("float,int32_t", [X, Out((4, 6)), Out((4, 6)), 4, 6, True]),
    "sorted_topk": ("float,int32_t", [X, Out((4, 2)), Out((4, 2)), 4, 6, 2, True, False]),
}
"""One call of each form that is right; what follows changes one argument of it."""


def with_argument(name: str, index: int, value: Any) -> list[Any]:
    arguments = list(GOOD[name][1])
    arguments[index] = value
    return arguments


def changed() -> Iterator[tuple[str, int, Any]]:
    """A null and a misaligned pointer, an empty shape and length, for each argument there is."""
    for name, (_, arguments) in GOOD.items():
        optional = {3, 4} if name == "sigmoid" else set()
        for index, value in enumerate(arguments):
            if isinstance(value, np.ndarray | Out) and index not in optional:
                yield name, index, None
                one_byte = isinstance(value, np.ndarray) and value.dtype.itemsize == 1
                is_flag = isinstance(value, Out) and name in ("isnan", "broadcast_equal")
                if not one_byte and not is_flag and name != "logical_not" and name != "logical_and":
                    yield name, index, Shifted(np.zeros(24, np.float32))
            if isinstance(value, list) and name != "as_strided" and value in (SHAPE, [24]):
                yield name, index, EMPTY
                yield name, index, []
                yield name, index, [1, *EIGHT]


CHANGED = list(changed())


@pytest.mark.parametrize("name", GOOD)
def test_the_right_call_is_taken(card: Card, name: str) -> None:
    kinds, arguments = GOOD[name]
    answer = card.call(name, kinds, *arguments)
    assert (answer.status, answer.waited) == (SUCCESS, 0)


@pytest.mark.parametrize(
    ("name", "index", "value"), CHANGED, ids=[f"{n}-{i}-{v!r:.9}" for n, i, v in CHANGED]
)
def test_one_wrong_argument_is_refused(card: Card, name: str, index: int, value: Any) -> None:
    answer = card.call(name, GOOD[name][0], *with_argument(name, index, value))
    assert (answer.status, answer.waited) == (INVALID_PARAM, 0)


BAD: list[tuple[str, int, Any]] = [
    ("constant", 1, 0),
    ("constant", 1, -1),
    ("range", 3, 0),
    ("copy", 2, 0),
    ("cast", 2, 0),
    ("cast", 1, Same(0)),
    ("exp", 2, 0),
    ("round", 3, 7),
    ("clip", 4, -1.0),
    ("clip", 3, float("nan")),
    ("isnan", 2, 0),
    ("logical_not", 2, 0),
    ("logical_and", 3, -5),
    ("sigmoid", 2, 0),
    ("as_strided", 2, EMPTY),
    ("as_strided", 3, [6]),
    ("as_strided", 3, [-6, 1]),
    ("as_strided", 4, -1),
    ("as_strided", 1, Same(0)),
    ("transpose", 3, [0]),
    ("transpose", 3, [0, 0]),
    ("transpose", 3, [0, 2]),
    ("transpose", 1, Same(0)),
    ("broadcast", 3, [4, 23]),
    ("broadcast", 3, [1]),
    ("broadcast", 1, Same(0)),
    ("broadcast_add", 4, [4, 5]),
    ("broadcast_add", 3, [3, 6]),
    ("broadcast_equal", 4, [4, 5]),
    ("select", 4, [4, 5]),
    ("select", 4, [1, 4, 6]),
    ("reduce_sum", 3, []),
    ("reduce_sum", 3, [2]),
    ("reduce_sum", 3, [-1]),
    ("reduce_sum", 3, [1, 1]),
    ("reduce_sum", 1, Same(0)),
    ("softmax", 3, 2),
    ("softmax", 3, -1),
    ("cumsum", 5, 2),
    ("argmax", 3, -1),
    ("argmax", 1, Same(0)),
    ("gather", 4, 0),
    ("gather", 5, 2),
    ("gather", 2, Same(0)),
    ("scatter", 2, Halves(None, None, 4)),
    ("scatter", 2, Halves(I4, I4, 0)),
    ("scatter", 3, 0),
    ("scatter", 4, 0),
    ("scatter", 1, Same(0)),
    ("index_add", 5, 0),
    ("index_add", 6, -1),
    ("index_add", 2, Same(1)),
    ("embedding", 3, 0),
    ("embedding", 4, 0),
    ("embedding", 5, 0),
    ("embedding", 6, -2),
    ("embedding", 7, -1),
    ("sort", 3, 0),
    ("sort", 4, 0),
    ("sorted_topk", 5, 0),
    ("sorted_topk", 5, 7),
    ("sorted_topk", 1, Same(0)),
    ("reduce_sum", 2, [1 << 32, 1 << 32]),
    ("exp", 2, 1 << 61),
    ("as_strided", 3, [1 << 62, 1]),
    ("as_strided", 4, 1 << 61),
    ("gather", 4, 1 << 59),
    ("index_add", 5, 1 << 59),
    ("scatter", 3, 1 << 59),
    ("embedding", 5, 1 << 59),
    ("sort", 3, 1 << 59),
    ("broadcast_add", 3, [1 << 58, 1, 1]),
]
"""Rules that the changes above do not reach."""


@pytest.mark.parametrize(("name", "index", "value"), BAD, ids=[f"{n}-{i}-{v}" for n, i, v in BAD])
def test_a_broken_rule_is_refused(card: Card, name: str, index: int, value: Any) -> None:
    answer = card.call(name, GOOD[name][0], *with_argument(name, index, value))
    assert (answer.status, answer.waited) == (INVALID_PARAM, 0)


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("sigmoid", 3, np.ones(1, np.float32)),
        ("sigmoid", 4, np.ones(1, np.float32)),
        ("scatter", 5, False),
        ("sorted_topk", 7, True),
    ],
)
def test_what_no_source_explains_is_not_implemented(
    card: Card, name: str, index: int, value: Any
) -> None:
    answer = card.call(name, GOOD[name][0], *with_argument(name, index, value))
    assert answer.status == NOT_IMPLEMENT


def test_rank_eight_is_the_last_that_is_taken(card: Card) -> None:
    assert card.call("softmax", "float", X, Out((24,)), EIGHT, 7).status == SUCCESS
    assert card.call("softmax", "float", X, Out((24,)), [1, *EIGHT], 7).status == INVALID_PARAM


def test_no_context_is_refused(card: Card) -> None:
    answer = card.call("exp", "float", *GOOD["exp"][1], context=False)
    assert answer.status == INVALID_PARAM


def test_a_refused_call_touches_nothing(card: Card) -> None:
    out = np.full(24, 7.0, np.float32)
    answer = card.call("sorted_topk", "float,int32_t", X, out, Out((4, 2)), 4, 6, 7, True, False)
    assert answer.status == INVALID_PARAM
    assert answer.arrays[1].tolist() == out.tolist()


FAULTS: list[tuple[str, int, Any]] = [
    ("exp", 0, Host(X)),
    ("exp", 1, Host(X)),
    ("exp", 2, 1 << 20),
    ("as_strided", 3, [1 << 20, 1]),
    ("as_strided", 4, 1 << 20),
    ("gather", 1, np.array([0, 4, 0, 0], np.int32)),
    ("gather", 1, np.array([0, -1, 0, 0], np.int32)),
    ("scatter", 2, Halves(None, np.array([0, 4], np.int32))),
    ("scatter", 2, Halves(np.array([0, -1], np.int32), None)),
    ("scatter", 2, Halves(I4, I4[::-1].copy())),
    ("index_add", 3, np.array([0, 4, 0, 0], np.int32)),
    ("index_add", 3, np.array([0, -1, 0, 0], np.int32)),
]


@pytest.mark.parametrize(
    ("name", "index", "value"), FAULTS, ids=[f"{n}-{i}-{k}" for k, (n, i, _) in enumerate(FAULTS)]
)
def test_what_the_kernel_sees_is_an_exception_at_the_wait(
    tmp_path: Path, name: str, index: int, value: Any
) -> None:
    with started_card(tmp_path) as card:
        answer = card.call(name, GOOD[name][0], *with_argument(name, index, value))
        assert (answer.status, abs(answer.waited)) == (SUCCESS, KEXCEPTION)


def test_an_integer_divided_by_zero_is_an_exception(tmp_path: Path) -> None:
    zero = np.zeros(1, np.int32)
    with started_card(tmp_path) as card:
        answer = card.call("broadcast_div", "int32_t", I4, zero, Out((4,)), [4], [1])
        assert (answer.status, abs(answer.waited)) == (SUCCESS, KEXCEPTION)


def test_a_tainted_runtime_is_a_runtime_error(tmp_path: Path) -> None:
    with started_card(tmp_path) as card:
        first = card.call("exp", "float", Host(X), Host(X), 24)
        assert (first.status, abs(first.waited)) == (SUCCESS, KEXCEPTION)
        assert card.call("exp", "float", Host(X), Host(X), 24).status == RUNTIME_ERROR


def test_the_reason_is_said_where_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for level, heard in (("1", True), ("0", False)):
        with started_card(tmp_path / level, XPUAPI_DEBUG=level) as card:
            card.call("exp", "float", X, None, 24)
        assert ("[xdnn] exp: null: y" in capfd.readouterr().err) is heard


def test_every_operator_has_one_right_call_or_shares_its_form() -> None:
    """A new operator must join a form that the tests above go through."""
    same = {
        "exp": "abs log neg sqrt rsqrt floor",
        "isnan": "isfinite",
        "logical_and": "logical_or",
        "sigmoid": "tanh relu swish gelu approximate_gelu",
        "broadcast_add": "broadcast_sub broadcast_mul broadcast_div broadcast_max broadcast_min"
        " broadcast_pow",
        "broadcast_equal": "broadcast_less_than broadcast_less_equal",
        "reduce_sum": "reduce_mean reduce_max reduce_min reduce_all reduce_any",
        "softmax": "log_softmax",
        "sort": "stable_sort",
    }
    covered = set(GOOD) | {name for names in same.values() for name in names.split()}
    assert covered == set(FUNCTIONS)
    assert all(instances(name) for name in covered)
