"""int8 by int8: rows are rounded as the format says, and sums are exact."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, normal, relative, same_bits

from anychip.contract.errors import ChipError
from anychip.contract.weights import HostWeight, WeightUse

USES = frozenset({WeightUse.LINEAR})


def made(n, k, static=None, seed=0):
    """(bytes, float32 scales [n, 1], int8 [n, k]); static: scale and zero point of activations."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.01, 0.1, (n, 1)).astype(np.float32)
    q = rng.integers(-128, 128, (n, k)).astype(np.int8)
    raw = np.concatenate([scale.view(np.uint8), q.view(np.uint8)], axis=1).reshape(-1)
    if static:
        head = np.array([static[0]], "<f4").tobytes() + np.array([static[1]], "<i4").tobytes()
        raw = np.concatenate([np.frombuffer(head, np.uint8), raw])
    return raw, scale, q


def wanted(x, scale, q, static=None):
    """As contract/formats.py defines it, with whole sums."""
    x = x.astype(np.float32)
    step = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    low, zero = -127, 0
    if static:
        step, low, zero = np.float32(static[0]), -128, static[1]
    whole = np.clip(np.rint(x / step) + zero, low, 127).astype(np.int64) - zero
    return (step * scale.T) * (whole @ q.astype(np.int64).T).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 3, 16, 45, 130])
@pytest.mark.parametrize("static", [None, (0.02, 0), (0.03, -17)], ids=str)
def test_sums_are_exact_and_meet_their_scales_once(each, static, rows):
    name = "w8a8_static" if static else "w8a8"
    for n, k in ((71, 4133), (33, 3)):  # several parts and blocks of rows, and no whole word
        raw, scale, q = made(n, k, static)
        weight = each.weight(name, (n, k), raw)
        for dtype in (np.dtype(np.float32), BF16):
            x = normal(1, rows, k, dtype=dtype)
            y = each.call("lm_head", x=x, weight=weight)
            assert np.array_equal(y, wanted(x, scale, q, static))
            linear = each.call("linear", x=x, weight=weight)
            assert np.array_equal(linear, y.astype(dtype))
            assert same_bits(linear[-1:], each.call("linear", x=x[-1:], weight=weight))
            exact = x.astype(np.float64) @ (scale.astype(np.float64) * q).T
            assert 1e-5 < relative(y, exact) < 0.1


@pytest.mark.parametrize("k", [576, 100, 1344])
def test_a_row_of_a_block_does_not_depend_on_its_batch(each, k):
    """Many rows may take another way through gate and up than few: the bits are the same."""
    gate_up, down = made(192, k)[0], made(k, 96, seed=3)[0]
    weights = {
        "gate_up": each.weight("w8a8", (192, k), gate_up),
        "down": each.weight("w8a8", (k, 96), down),
    }
    given = {"residual": None, "norm": normal(4, k), **weights}
    x = normal(3, 200, k, dtype=BF16)
    whole, _ = each.call("mlp_block", {"eps": 1e-5}, x=x, **given)
    for first, last in ((0, 1), (1, 17), (17, 57), (57, 185), (185, 200)):
        part, _ = each.call("mlp_block", {"eps": 1e-5}, x=x[first:last], **given)
        assert same_bits(part, whole[first:last]), (first, last)


def test_packed_bytes_are_near_the_files(each):
    for n, k in ((960, 576), (2048, 8192)):
        spec = each.chip.weights.plan(("w8a8",), ((n, k),), USES)
        assert spec.nbytes <= 1.01 * n * (4 + k)


def test_the_largest_sums_fit(each):
    k = 65_793
    weight = each.weight("w8a8_static", (1, k), largest(k))
    y = each.call("linear", x=np.full((1, k), -1e9, np.float32), weight=weight)
    assert y[0, 0] == np.float32(255 * 128 * k)
    with pytest.raises(ChipError, match="may not fit 32 bits"):
        each.chip.weights.plan(("w8a8_static",), ((1, k + 1),), USES)


def largest(k):
    head = np.array([1], "<f4").tobytes() + np.array([127], "<i4").tobytes()
    row = np.array([1], "<f4").tobytes() + np.full(k, -128, np.int8).tobytes()
    return np.frombuffer(head + row, np.uint8)


@pytest.mark.parametrize("static", [None, (0.02, 3)], ids=str)
def test_rows_that_are_zero_or_not_finite(each, static):
    raw, scale, q = made(40, 64, static)
    weight = each.weight("w8a8_static" if static else "w8a8", (40, 64), raw)
    x = normal(2, 6, 64)
    x[1], x[3, 5], x[4, 60] = 0, np.nan, np.inf
    y = each.call("linear", x=x, weight=weight)
    assert not y[1].any() and np.isnan(y[3:5]).all()
    kept = [0, 2, 5]
    assert np.array_equal(y[kept], wanted(x[kept], scale, q, static))


def test_stacked_parts_round_each_in_its_own_way(each):
    statics = [(0.02, 0), (0.05, -3), (0.01, 100)]
    parts = [made(n, 96, s, seed=n) for n, s in zip((10, 3, 25), statics, strict=True)]
    held = tuple(HostWeight("w8a8_static", q.shape, memoryview(raw)) for raw, _, q in parts)
    weight, x = each.chip.weights.prepare(held, USES), normal(3, 5, 96)
    y = each.call("linear", x=x, weight=weight)
    each_alone = [wanted(x, scale, q, s) for (_, scale, q), s in zip(parts, statics, strict=True)]
    assert np.array_equal(y, np.concatenate(each_alone, axis=1))


@pytest.mark.parametrize("static", [None, (0.02, 3)], ids=str)
def test_rows_are_looked_up_without_rounding(each, static):
    raw, scale, q = made(20, 33, static)
    uses = frozenset({WeightUse.EMBEDDING, WeightUse.LM_HEAD})
    table = each.weight("w8a8_static" if static else "w8a8", (20, 33), raw, uses)
    tokens = np.array([19, 0, 16], np.int32)
    y = each.call("embedding", {"dtype": "float32"}, tokens=tokens, table=table)
    assert np.array_equal(y, (scale * q)[tokens])


@pytest.mark.parametrize("static", [(0.0, 0), (np.nan, 0), (0.1, 128)], ids=str)
def test_a_rounding_that_is_none_is_refused(cpu, static):
    raw, _, _ = made(4, 32, static)
    used = cpu.chip.memory._store.used
    with pytest.raises(ChipError, match="rounds activations with scale"):
        cpu.weight("w8a8_static", (4, 32), raw)
    assert cpu.chip.memory._store.used == used


def test_int8_does_not_stack_with_others(cpu):
    text = "parts that round their activations"
    assert text in (cpu.chip.weights.declines(("w8a8", "q8_0"), ((4, 32),) * 2, USES) or "")
    assert cpu.chip.weights.declines(("q4_k", "q6_k"), ((4, 256),) * 2, USES) is None
