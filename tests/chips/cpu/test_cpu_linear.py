"""Products with packed weights: right, whatever the format; the same bits, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, normal, relative, same_bits
from cpu_weights import FORMATS, make_weight, whole_columns

from anychip.contract.errors import ChipError
from anychip.contract.formats import format_bytes
from anychip.contract.weights import HostWeight, WeightUse

LIMIT = {np.dtype(np.float32): 2e-6, BF16: 6e-3}


@pytest.mark.parametrize("rows", [0, 1, 3, 17])
@pytest.mark.parametrize("name", FORMATS)
def test_linear_of_every_format(each, name, rows):
    k = whole_columns(name, 576)
    data, values = make_weight(name, 71, k)
    weight = each.weight(name, (71, k), data)
    x, bias = normal(1, rows, k), normal(2, 71)
    y = each.call("linear", x=x, weight=weight, bias=bias)
    wanted = x.astype(np.float64) @ values.T + bias
    assert y.shape == (rows, 71) and (rows == 0 or relative(y, wanted) < 2e-6)
    assert rows == 0 or relative(y, wanted - bias) > 1e-3


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("name", FORMATS)
def test_linear_in_bfloat16(each, name, rows):
    data, values = make_weight(name, 100, 1536)
    x = normal(3, rows, 1536, dtype=BF16)
    y = each.call("linear", x=x, weight=each.weight(name, (100, 1536), data))
    assert y.dtype == BF16 and relative(y, x.astype(np.float64) @ values.T) < LIMIT[BF16]


@pytest.mark.parametrize("k", [1, 33, 2049])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_odd_columns(each, name, k):
    for dtype in (np.dtype(np.float32), BF16):
        data, values = make_weight(name, 5, k)
        x = normal(4, 19, k, dtype=dtype)
        y = each.call("linear", x=x, weight=each.weight(name, (5, k), data))
        assert relative(y, x.astype(np.float64) @ values.T) < LIMIT[dtype]


@pytest.mark.parametrize("rows", [1, 2, 20])
def test_rows_may_lie_apart(best, rows):
    cpu = best()
    data, values = make_weight("q4_1", 64, 96)
    weight, x = cpu.weight("q4_1", (64, 96), data), normal(5, rows, 96)
    y = cpu.call("linear", x=cpu.put(x, row_gap=7), weight=weight)
    assert relative(y, x.astype(np.float64) @ values.T) < 2e-6


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_does_not_depend_on_its_batch(each, name, dtype):
    k = whole_columns(name, 4128)  # more than one block of K
    data, _ = make_weight(name, 70, k)
    weight, x = each.weight(name, (70, k), data), normal(6, 230, k, dtype=dtype)
    whole = each.call("linear", x=x, weight=weight)
    for first, last in ((0, 1), (1, 3), (3, 11), (11, 24), (24, 40), (40, 230)):
        part = each.call("linear", x=x[first:last], weight=weight)
        if widened(each, name, dtype) and last - first < 16:  # few rows read the exact numbers
            assert relative(part, whole[first:last]) < LIMIT[BF16], (first, last)
        else:
            assert same_bits(part, whole[first:last]), (first, last)


def widened(each, name, dtype):
    """Whether many rows meet this weight rounded to bfloat16: AMX has no scales."""
    tiles = each.chip.capabilities().facts["isa"].startswith("amx")
    return tiles and dtype == BF16 and name[0] in "qu"


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=str)
def test_a_row_does_not_depend_on_the_threads(best, dtype):
    data, _ = make_weight("q8_0", 300, 576)
    for rows in (1, 8, 64):
        x = normal(7, rows, 576, dtype=dtype)
        one, two = (
            c.call("linear", x=x, weight=c.weight("q8_0", (300, 576), data))
            for c in (best(threads=1), best(threads=3))
        )
        assert same_bits(one, two)


@pytest.mark.parametrize("name", ["bfloat16", "q8_0"])
@pytest.mark.parametrize("n", [40, 300, 1000])
def test_threads_that_help_each_other_leave_no_panel_out(best, name, n):
    """More threads than cores, so that some come late, and than there are panels. By turns two
    inputs, or the memory of the last result might hold what was left out."""
    one, many = best(threads=1), best(threads=7)
    data, _ = make_weight(name, n, 64)
    alone, shared = (c.weight(name, (n, 64), data) for c in (one, many))
    inputs = [normal(seed, 3, 64, dtype=BF16) for seed in (9, 10)]
    wanted = [one.call("linear", x=x, weight=alone) for x in inputs]
    for i in range(60):
        found = many.call("linear", x=inputs[i % 2], weight=shared)
        assert same_bits(found, wanted[i % 2])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", [1, 30])
def test_lm_head_scales_and_caps(each, name, rows):
    k = whole_columns(name, 64)
    data, values = make_weight(name, 131, k)
    x, attrs = normal(8, rows, k, dtype=BF16), {"scale": 0.25, "softcap": 3.0}
    weight = each.weight(name, (131, k), data, frozenset({WeightUse.LM_HEAD}))
    logits = each.call("lm_head", attrs, x=x, weight=weight)
    plain = x.astype(np.float64) @ values.T * 0.25
    assert logits.dtype == np.float32
    # A quantized weight may meet the rows as whole numbers of 16 bits: see linear_vnni.h.
    limit = 2e-5 if name[0] == "q" else 1e-5
    wanted = 3 * np.tanh(plain / 3)
    assert relative(logits, wanted) < limit < relative(plain, wanted)


@pytest.mark.parametrize("rows", [1, 31, 70])
def test_lm_head_of_whole_panels(each, rows):
    """Nothing but the sums themselves is left to be written."""
    data, values = make_weight("bfloat16", 96, 64)
    x = normal(8, rows, 64, dtype=BF16)
    weight = each.weight("bfloat16", (96, 64), data, frozenset({WeightUse.LM_HEAD}))
    logits, wanted = each.call("lm_head", x=x, weight=weight), x.astype(np.float64) @ values.T
    assert logits.dtype == np.float32
    assert relative(logits, wanted) < 2e-6 < relative(logits, wanted[:, ::-1])


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("rows", [1, 6, 40])
def test_numbers_that_are_not_finite_stay_in_their_rows(each, name, rows):
    data, _ = make_weight(name, 70, 64)
    x = normal(9, rows, 64, dtype=BF16)
    broken = x.copy()
    broken[rows // 2, 5], broken[rows // 2, 40] = np.nan, np.inf
    weight = each.weight(name, (70, 64), data)
    whole, found = (each.call("linear", x=given, weight=weight) for given in (x, broken))
    others = np.arange(rows) != rows // 2
    assert np.isnan(found[rows // 2].astype(np.float32)).all()
    assert not others.any() or relative(found[others], whole[others]) < LIMIT[BF16]


@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_tiny_and_huge_rows_keep_their_size(each, size):
    data, values = make_weight("q8_0", 70, 64)
    x = (normal(10, 3, 64) * np.float32(size)).astype(BF16)
    y = each.call("linear", x=x, weight=each.weight("q8_0", (70, 64), data)).astype(np.float64)
    assert relative(y / (size or 1), x.astype(np.float64) @ values.T / (size or 1)) < LIMIT[BF16]


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1"])
def test_the_largest_number_there_is_comes_out_the_same_in_any_batch(each, name):
    data, _ = make_weight(name, 70, 64)
    weight, x = each.weight(name, (70, 64), data), normal(18, 9, 64, dtype=BF16)
    x[:, ::32] = 255 / 128 * 16  # the most that a power of two and seven bits behind it can say
    whole = each.call("linear", x=x, weight=weight)
    for row in range(9):
        assert same_bits(each.call("linear", x=x[row : row + 1], weight=weight)[0], whole[row])


@pytest.mark.parametrize("uses", [{WeightUse.EMBEDDING}, {WeightUse.EMBEDDING, WeightUse.LM_HEAD}])
@pytest.mark.parametrize("name", FORMATS)
def test_embedding_reads_rows(each, name, uses):
    k = whole_columns(name, 96)
    data, values = make_weight(name, 77, k)
    table = each.weight(name, (77, k), data, frozenset(uses))
    tokens = np.array([0, 76, 5, 5, 33], np.int32)
    for dtype, limit in (("float32", 1e-7), ("bfloat16", 4e-3)):
        y = each.call("embedding", {"dtype": dtype, "scale": 2.0}, tokens=tokens, table=table)
        assert relative(y, values[tokens] * 2) < limit
    assert relative(y, values[tokens[::-1]]) > 0.1


STACKS = (
    *(("q4_1",) * 3, ("float32",) * 3, ("u4g128",) * 3),
    *(("q4_0", "q8_0", "float16"), ("q4_k", "q4_k", "q6_k"), ("u4g64o",) * 3),
)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=str)
@pytest.mark.parametrize("names", STACKS)
def test_parts_are_stacked(each, names, dtype):
    """Of one format, of several, and each with an order of columns of its own; with a bias."""
    weight, values = stacked(each, names, {WeightUse.LINEAR})
    x, bias = normal(9, 4, 256, dtype=dtype), normal(10, 38)
    y = each.call("linear", x=x, weight=weight, bias=bias)
    wanted = x.astype(np.float64) @ values.T + bias
    assert relative(y, wanted) < LIMIT[dtype] < relative(y, wanted[:, ::-1])
    one = each.call("linear", x=x[:1], weight=weight, bias=bias)
    assert same_bits(one, y[:1])


@pytest.mark.parametrize("names", STACKS[3:])
def test_rows_of_stacked_parts_are_looked_up(each, names):
    weight, values = stacked(each, names, {WeightUse.EMBEDDING, WeightUse.LM_HEAD})
    tokens = np.array([0, 9, 10, 12, 13, 37], np.int32)
    y = each.call("embedding", {"dtype": "float32"}, tokens=tokens, table=weight)
    assert relative(y, values[tokens]) < 1e-6 < relative(y, values[tokens[::-1]])


def stacked(each, names, uses):
    """(weight, values) of parts of 10, 3 and 25 rows."""
    made = [make_weight(name, n, 256, seed=n) for name, n in zip(names, (10, 3, 25), strict=True)]
    parts = tuple(
        HostWeight(name, values.shape, memoryview(data.reshape(-1)))
        for name, (data, values) in zip(names, made, strict=True)
    )
    weight = each.chip.weights.prepare(parts, frozenset(uses))
    return weight, np.concatenate([values for _, values in made])


def test_an_order_that_is_none_of_all_columns_is_refused(cpu):
    data, _ = make_weight("u4g64o", 8, 64)
    used = cpu.chip.memory._store.used
    data[:4] = data[4:8]
    with pytest.raises(ChipError, match="order of columns is not one of all 64"):
        cpu.weight("u4g64o", (8, 64), data)
    assert cpu.chip.memory._store.used == used


@pytest.mark.parametrize(
    ("said", "held"),
    [("q4_k", "q6_k"), ("u4g64o", "q4_1"), ("u4g128", "u8g128o"), ("q8_0", "q4_k")],
)
def test_bytes_of_another_format_are_refused(cpu, said, held):
    """A weight whose spec says another format than its bytes."""
    data, _ = make_weight(held, 32, 256)
    with pytest.raises(ChipError, match=f"a {said} weight .* bytes, not"):
        cpu.weight(said, (32, 256), data)


@pytest.mark.parametrize("name", FORMATS)
def test_packed_bytes_are_near_the_files(cpu, name):
    spec = cpu.chip.weights.plan((name,), ((1024, 1024),), frozenset({WeightUse.LINEAR}))
    assert spec.nbytes <= 1.1 * format_bytes(name, (1024, 1024))


@pytest.mark.parametrize("name", FORMATS)
def test_planned_bytes_are_the_allocated_ones(cpu, name):
    k = whole_columns(name, 64)
    data, _ = make_weight(name, 50, k)
    for uses in ({WeightUse.LINEAR}, {WeightUse.EMBEDDING}):
        before = cpu.chip.memory._store.used
        spec = cpu.chip.weights.plan((name,), ((50, k),), frozenset(uses))
        weight = cpu.weight(name, (50, k), data, frozenset(uses))
        assert weight.spec == spec
        assert (
            cpu.chip.memory._store.used - before == spec.nbytes == weight.tensors[0].buffer.nbytes
        )
        cpu.chip.weights.release(weight)
        assert cpu.chip.memory._store.used == before
