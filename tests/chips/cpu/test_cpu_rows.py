"""Operators over rows, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, normal, relative, same_bits

from anychip.contract.errors import ChipError

F32 = np.dtype(np.float32)
LIMIT = {F32: 5e-7, BF16: 4e-3}
DTYPES = pytest.mark.parametrize("dtype", [F32, BF16], ids=str)


def normed(x, weight, eps=1e-5):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


@DTYPES
@pytest.mark.parametrize("shape", [(0, 16), (1, 576), (3, 33), (70, 1000)])
def test_rms_norm(each, shape, dtype):
    x, weight = normal(1, *shape, dtype=dtype), normal(2, shape[1])
    y = each.call("rms_norm", {"eps": 1e-5}, x=each.put(x, row_gap=3), weight=weight)
    assert relative(y, normed(x, weight)) < LIMIT[dtype]
    assert shape[0] == 0 or relative(y, normed(x, weight, 0.1)) > 1e-2


@DTYPES
def test_add_rms_norm(each, dtype):
    x, residual = normal(1, 5, 577, dtype=dtype), normal(2, 5, 577, dtype=dtype)
    weight = normal(3, 577)
    y, total = each.call("add_rms_norm", {"eps": 1e-5}, x=x, residual=residual, weight=weight)
    assert same_bits(total, x + residual)
    assert relative(y, normed(total, weight)) < LIMIT[dtype]


@DTYPES
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 20])
def test_rotary(each, rotary_dim, neox, dtype):
    q, k = normal(1, 5, 6, 64, dtype=dtype), normal(2, 5, 2, 64, dtype=dtype)
    positions, half = np.array([0, 9, 3, 3, 7]), rotary_dim // 2
    angle = np.arange(10)[:, None] * 100.0 ** -(np.arange(half) / half)
    table = np.concatenate([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    attrs = {"rotary_dim": rotary_dim, "neox": neox}
    q_in, k_in = each.put(q, row_gap=5), each.put(k)
    got = each.call("rotary_embedding", attrs, q=q_in, k=k_in, positions=positions, cos_sin=table)
    for x, y in zip((q, k), got, strict=True):
        wanted = x.astype(np.float64).copy()
        one, two = (
            (slice(0, half), slice(half, rotary_dim))
            if neox
            else (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2))
        )
        c, s = np.cos(angle)[positions][:, None], np.sin(angle)[positions][:, None]
        a, b = wanted[..., one].copy(), wanted[..., two].copy()
        wanted[..., one], wanted[..., two] = a * c - b * s, b * c + a * s
        assert relative(y, wanted) < LIMIT[dtype] < relative(y, x)


def test_positions_outside_of_the_table_are_refused(cpu):
    x = normal(1, 1, 1, 8)
    given = {"q": x, "k": x, "positions": np.array([4]), "cos_sin": normal(2, 4, 8)}
    with pytest.raises(ChipError, match=r"rotary_embedding|position .* outside"):
        cpu.call("rotary_embedding", {"rotary_dim": 8}, **given)


@DTYPES
@pytest.mark.parametrize("inner", [1, 100, 1536])
def test_gated_activations(each, inner, dtype):
    x = (normal(1, 4, 2 * inner) * 4).astype(dtype)
    a, b = np.split(x.astype(np.float64), 2, axis=1)
    silu = a / (1 + np.exp(-a)) * b
    gelu = 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))) * b
    limit = LIMIT[dtype] * 2
    assert relative(each.call("silu_and_mul", x=x), silu) < limit
    assert relative(each.call("gelu_tanh_and_mul", x=x), gelu) < limit < relative(silu, gelu)


def test_silu_at_the_ends(each):
    x = np.array([[-200.0, -90.0, 90.0, np.nan, np.inf, 1, 1, 1, 1, 1]], np.float32)
    y = each.call("silu_and_mul", x=x)[0]
    assert abs(y[0]) < 1e-30 and abs(y[1]) < 1e-30 and y[2] == 90
    assert np.isnan(y[3]) and y[4] == np.inf


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_casts_round_to_nearest_even(each, count):
    bits = np.random.default_rng(1).integers(0, 2**32, count, np.uint32)
    x = bits.view(np.float32)
    for target, name in ((BF16, "bfloat16"), (np.dtype(np.float16), "float16")):
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = x.astype(target)
        y = each.call("cast", {"dtype": name}, x=x)
        number = ~np.isnan(x)
        assert same_bits(y[number], wanted[number]) and np.isnan(y[~number]).all()
        back = each.call("cast", {"dtype": "float32"}, x=y)
        assert same_bits(back[number], wanted.astype(np.float32)[number])


@DTYPES
def test_sums_and_products(each, dtype):
    a, b = normal(1, 3, 777, dtype=dtype), normal(2, 3, 777, dtype=dtype)
    assert same_bits(each.call("add", a=a, b=b), a + b)
    assert same_bits(each.call("mul", a=a, b=b), a * b)
    wide = each.call("add", a=a, b=b[:1])
    assert each.last_id == "hostops.add" and same_bits(wide, a + b[:1])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_row_moves(cpu, dtype):
    table, index = (normal(1, 9, 5) * 9).astype(dtype), np.array([8, 0, 0, 3], np.int32)
    taken = cpu.call("gather_rows", table=cpu.put(table, row_gap=2), index=index)
    assert same_bits(taken, table[index])
    target, keep = cpu.put(table), np.array([2, -1, 7, -5], np.int32)
    source = np.flip(table[:4]).copy()
    given = {"target": target, "source": cpu.put(source, row_gap=1), "index": keep}
    cpu.prepared("scatter_rows", given, {})[0]()
    wanted = table.copy()
    wanted[[2, 7]] = source[[0, 2]]
    assert same_bits(cpu.get(target), wanted)


def test_indices_outside_are_refused_by_name(cpu):
    x = normal(1, 4, 4)
    for index in ([4], [-1]):
        with pytest.raises(ChipError, match="a row index is outside") as caught:
            cpu.call("gather_rows", table=x, index=np.array(index, np.int32))
        assert caught.value.operators == ("gather_rows",) and not caught.value.fatal


def test_rows_do_not_depend_on_their_batch(each):
    x, weight = normal(1, 200, 576), normal(2, 576)
    whole = each.call("rms_norm", {"eps": 1e-5}, x=x, weight=weight)
    part = each.call("rms_norm", {"eps": 1e-5}, x=x[123:124], weight=weight)
    assert same_bits(part, whole[123:124])


def test_copies(cpu):
    x = normal(1, 6, 50)
    assert same_bits(cpu.call("copy", x=x), x) and cpu.last_id.endswith(".copy")
    apart = cpu.call("copy", x=cpu.put(x, row_gap=3))
    assert cpu.last_id == "hostops.copy" and same_bits(apart, x)
