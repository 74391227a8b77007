"""Products of the simulated libxpuapi and libxpu_blas against float64, with wrong ones beside."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_llm_card import (
    BOUND,
    COMPUTE,
    INVALID_PARAM,
    KEXCEPTION,
    NOT_IMPLEMENT,
    TYPES,
    Answer,
    Card,
    Host,
    error,
    exact,
    made,
    started_card,
    values,
)
from sim_trees import TABLES, shared_tree, with_accounts
from sim_xdnn_card import table

LINEAR, RELU, GELU, SWISH, EXP = 0, 1, 4, 16, 12
API, PLAIN, STRUCTS = 0, 1, 2
REFUSED = {("bfloat16", c) for c in ("float16", "int16", "int32", "int_with_ll")} | {
    ("float16", "int32"),
    ("float16", "tfloat32"),
}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


def product(card: Card, x: Any, w: Any, y: Any, kind: str = "float", **given: Any) -> Answer:
    """x [m, k] times w [n, k] transposed, unless told otherwise."""
    m, k = (x.array if isinstance(x, Host) else x).shape
    n = w.shape[0]
    if given.get("x_trans"):
        m, k = k, m
    if given.get("w_trans", 1) == 0:
        n = w.shape[1]
    keys = ("form", "compute", "m", "n", "k", "ldx", "ldw", "ldy", "x_trans", "w_trans", "act")
    numbers = dict.fromkeys(keys, 0) | {"m": m, "n": n, "k": k, "w_trans": 1, "ldy": n}
    numbers |= {"ldx": m if given.get("x_trans") else k, "ldw": k if given.get("w_trans", 1) else n}
    numbers |= {key: given[key] for key in keys if key in given}
    head = [numbers["form"], TYPES[kind], numbers["compute"]]
    pointers = [x, w, y, *(given.get(p) for p in ("x_max", "w_max", "y_max", "bias"))]
    floats = [given.get("alpha", 1.0), given.get("beta", 0.0)]
    return card.call("product", pointers, head + [numbers[key] for key in keys[2:]], floats)


@pytest.mark.parametrize("form", [API, PLAIN, STRUCTS])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 130, 96), (5, 67, 49), (259, 9, 16), (2, 1, 1)])
def test_product(card: Card, kind: str, form: int, m: int, n: int, k: int) -> None:
    x, w = values(kind, m, k), values(kind, n, k, seed=1)
    found = product(card, x, w, made(kind, m, n), kind, form=form).at(2)
    assert error(found, exact(x) @ exact(w).T) < BOUND[kind]


@pytest.mark.parametrize("form", [API, PLAIN, STRUCTS])
def test_every_transposition(card: Card, form: int) -> None:
    x, w = values("float", 7, 33), values("float", 12, 33, seed=1)
    wanted = exact(x) @ exact(w).T
    for x_trans in (0, 1):
        for w_trans in (0, 1):
            a = x.T.copy() if x_trans else x
            b = w if w_trans else w.T.copy()
            made_of = {"form": form, "x_trans": x_trans, "w_trans": w_trans}
            assert error(product(card, a, b, made("float", 7, 12), **made_of).at(2), wanted) < 2e-6


def test_rows_that_lie_apart_and_nothing_between_them_is_written(card: Card) -> None:
    x, w, y = values("float", 4, 20), values("float", 6, 24, seed=1), made("float", 4, 11)
    found = product(card, x, w, y, n=6, k=17, ldx=20, ldw=24, ldy=11).at(2)
    assert error(found[:, :6], exact(x[:, :17]) @ exact(w[:, :17]).T) < 2e-6
    assert (found[:3, 6:] == 1e4).all()


def test_alpha_beta_bias_and_activation_in_this_order(card: Card) -> None:
    x, w, y = values("float", 3, 40), values("float", 8, 40, seed=1), values("float", 3, 8, seed=2)
    bias = values("float", 8, seed=3)
    before = 0.5 * exact(x) @ exact(w).T + 2.0 * exact(y) + exact(bias)
    wanted = {
        LINEAR: before,
        RELU: np.maximum(before, 0),
        SWISH: before / (1 + np.exp(-before)),
        GELU: before * 0.5 * (1 + np.vectorize(math.erf)(before / math.sqrt(2))),
    }
    for act, value in wanted.items():
        for form in (API, PLAIN, STRUCTS):
            given = {"alpha": 0.5, "beta": 2.0, "bias": bias, "act": act, "form": form}
            assert error(product(card, x, w, y, **given).at(2), value) < 2e-6
    assert product(card, x, w, y, act=EXP).status == NOT_IMPLEMENT


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("compute", [c for c in COMPUTE if c != "bfloat16"])
def test_pairs_of_types_that_the_vendor_refuses(card: Card, kind: str, compute: str) -> None:
    x, w = values(kind, 2, 16), values(kind, 4, 16, seed=1)
    for form in (API, PLAIN, STRUCTS):
        answer = product(card, x, w, made(kind, 2, 4), kind, form=form, compute=COMPUTE[compute])
        if (kind, compute) in REFUSED:
            assert answer.status == INVALID_PARAM
        else:
            assert error(answer.at(2), exact(x) @ exact(w).T) < BOUND[kind] + 2e-3


def test_the_compute_type_shows_in_the_result(card: Card) -> None:
    """A product in whole numbers of 16 bits loses what is small beside the largest value."""
    x, w = values("float", 3, 64), values("float", 8, 64, seed=1)
    x[0, 0] = 3e4  # the whole operand is measured by its largest element
    wanted = exact(x) @ exact(w).T
    wrong = {c: product(card, x, w, made("float", 3, 8), compute=COMPUTE[c]) for c in COMPUTE}
    errors = {c: error(wrong[c].at(2)[1:], wanted[1:]) for c in ("float", "int16", "int32")}
    assert errors["float"] < 2e-6 and errors["int32"] < 1e-4 and errors["int16"] > 0.1
    finer = error(wrong["tfloat32"].at(2), wanted)
    assert 1e-5 < finer < 1e-3


def test_float16_products_overflow_beyond_its_range(card: Card) -> None:
    x, w = np.full((1, 2), 1e5, np.float32), np.ones((1, 2), np.float32)
    assert product(card, x, w, made("float", 1, 1)).at(2)[0, 0] == 2e5
    found = product(card, x, w, made("float", 1, 1), compute=COMPUTE["float16"])
    assert np.isinf(found.at(2)[0, 0])


def test_a_given_maximum_is_believed(card: Card) -> None:
    x, w = values("float", 3, 32), values("float", 4, 32, seed=1)
    wanted, slots = exact(x) @ exact(w).T, np.zeros(12, np.float32)
    for factor, good in ((1.0, True), (0.1, False)):
        slots[7] = factor * np.abs(x).max()  # the largest of all slots counts
        compute = COMPUTE["int16"]
        answer = product(card, x, w, made("float", 3, 4), compute=compute, x_max=slots)
        assert (error(answer.at(2), wanted) < 1e-3) is good


def test_the_largest_result_is_spread_over_the_slots(card: Card) -> None:
    x, w = values("float", 30, 8), values("float", 5, 8, seed=1)
    answer = product(card, x, w, made("float", 30, 5), y_max=np.full(12, -1, np.float32))
    found, slots = answer.at(2), answer.at(5)
    assert slots.max() == np.abs(found).max() and (slots >= 0).all() and len(set(slots)) > 1


def quantized(n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of 8 bits, their maxima a row, and what they stand for."""
    w = exact(values("float", n, k, seed=1)) * np.linspace(0.1, 4, n)[:, None]
    maxima = np.abs(w).max(axis=1)
    q = np.rint(w / maxima[:, None] * 127).astype(np.int8)
    return q, maxima.astype(np.float32), q * maxima[:, None] / 127


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_8_bits_speak_maxima_not_scales(card: Card, kind: str) -> None:
    x, (q, maxima, w) = values(kind, 3, 48), quantized(9, 48)
    wanted = exact(x) @ w.T
    numbers = [TYPES[kind], 3, 9, 48, 1]
    found = card.call("product_of_int8_weights", [x, q, made(kind, 3, 9), maxima], numbers).at(2)
    assert error(found, wanted) < BOUND[kind]
    scales = maxima / 127
    wrong = card.call("product_of_int8_weights", [x, q, made(kind, 3, 9), scales], numbers).at(2)
    cosine = np.sum(exact(wrong) * wanted) / np.linalg.norm(exact(wrong)) / np.linalg.norm(wanted)
    assert error(wrong, wanted) > 0.99 and cosine > 0.999
    assert np.allclose(exact(found), 127 * exact(wrong), rtol=0.02)


def test_gpt_product_takes_maxima_as_well(card: Card) -> None:
    x, (q, maxima, w) = values("float16", 2, 32), quantized(6, 32)
    arrays = [x, q, made("float16", 2, 6)]
    assert (
        error(card.call("gpt_product", [*arrays, maxima], [2, 6, 32]).at(2), exact(x) @ w.T) < 8e-4
    )
    assert card.call("gpt_product", [*arrays, None], [2, 6, 32]).status == INVALID_PARAM


def test_whole_numbers_of_8_bits_multiply_exactly(card: Card) -> None:
    """Maxima of 127 make an int8 operand the number that it is, as on the card."""
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-127, 128, (4, 300)).astype(np.int8) for _ in range(2))
    maxima = np.full(12, 127, np.float32)
    found = card.call("product_of_int8", [x, w, made("float", 4, 4), maxima], [4, 4, 300]).at(2)
    assert np.array_equal(found, x.astype(np.int64) @ w.T.astype(np.int64))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_results_of_float_from_16_bits(card: Card, kind: str) -> None:
    x, w = values(kind, 3, 64), values(kind, 70, 64, seed=1)
    found = card.call("product_to_float", [x, w, made("float", 3, 70)], [TYPES[kind], 3, 70, 64])
    assert error(found.at(2), exact(x) @ exact(w).T) < 2e-6


@pytest.mark.parametrize("of_blas", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_batches(card: Card, kind: str, of_blas: int) -> None:
    x, w, y = values(kind, 3, 5, 24), values(kind, 3, 7, 24, seed=1), values(kind, 3, 5, 7, seed=2)
    wanted = exact(x) @ exact(w).transpose(0, 2, 1)
    numbers = [of_blas, TYPES[kind], 0, 3, 5, 7, 24, 120, 168, 35, 0, 1]
    assert error(card.call("batch", [x, w, y], numbers, [1.0, 0.0]).at(2), wanted) < BOUND[kind]
    added = card.call("batch", [x, w, y], numbers, [2.0, 1.0]).at(2)
    assert error(added, 2 * wanted + exact(y)) < BOUND[kind]
    numbers[7] = 0  # one x for all is no batch of the vendor's
    assert card.call("batch", [x, w, y], numbers, [1.0, 0.0]).status == INVALID_PARAM


BROKEN: dict[str, dict[str, Any]] = {
    "no columns": {"n": 0},
    "a row longer than its ld": {"ldx": 15},
    "a row of y longer than its ld": {"ldy": 3},
}


@pytest.mark.parametrize("form", [API, PLAIN, STRUCTS])
@pytest.mark.parametrize("what", BROKEN)
def test_broken_arguments_are_refused_at_the_call(card: Card, what: str, form: int) -> None:
    x, w, y = values("float", 2, 16), values("float", 4, 16, seed=1), made("float", 2, 4)
    answer = product(card, x, w, y, form=form, **BROKEN[what])
    assert (answer.status, answer.waited) == (INVALID_PARAM, 0)
    assert product(card, x, w, None, m=2, form=form).status == INVALID_PARAM


def test_host_memory_is_a_kernel_exception(tmp_path: Path) -> None:
    with started_card(tmp_path) as card:
        x, w = values("float", 2, 16), values("float", 4, 16, seed=1)
        answer = product(card, Host(x), w, made("float", 2, 4))
        assert (answer.status, answer.waited) == (0, KEXCEPTION)


ON_R200 = """
import ctypes, sys
from ctypes import byref, c_float, c_int64, c_void_p
runtime = ctypes.CDLL("libxpurt.so", mode=ctypes.RTLD_GLOBAL)
xpuapi = ctypes.CDLL("libxpuapi.so")
xpuapi._ZN5baidu3xpu3api14create_contextEv.restype = c_void_p
context = c_void_p(xpuapi._ZN5baidu3xpu3api14create_contextEv())
places = [c_void_p() for _ in range(3)]
for place in places:
    assert runtime.xpu_malloc(byref(place), ctypes.c_uint64(4096), 0) == 0
linear, null, one = (c_int64 * 1)(0), c_void_p(), c_float(1)
sizes = [c_int64(16)] * 3
for symbol in sys.stdin.read().split():
    status = getattr(xpuapi, symbol)(
        context, *places, *sizes, False, True, null, null, null, *sizes, one, c_float(0), null,
        linear, null, null, null)
    print(status, runtime.xpu_wait(null))
"""


def test_float16_products_of_float_are_not_for_the_second_generation(tmp_path: Path) -> None:
    cells = next(r for r in table(TABLES / "abi_llm.tsv") if r["name"].endswith("api::fc_fusion"))
    symbols = dict(cell.split(":") for cell in cells["symbol"].split(";"))
    asked = [symbols[f"TX=float,TW=float,TY=float,TGEMM={c}"] for c in ("float", "float16")]
    tree = with_accounts(shared_tree("--profile", "r200"), tmp_path)
    child = tree.start(ON_R200)
    said, _ = child.communicate("\n".join(asked), timeout=60)
    assert said.split() == ["0", "0", str(INVALID_PARAM), "0"]
