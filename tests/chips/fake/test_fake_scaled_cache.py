"""Caches of one byte an element, each vector with its scale behind it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from strict_calls import host_bytes, opened, prepared, run

from anychip.chips.fake.registration import FakeChip
from anychip.conform.operator_cases import Types, fitted, typed
from anychip.contract.cache import HND, NHD, CacheGroup, CacheSpec, spec_over
from anychip.contract.dtype import DType
from anychip.contract.operators import OperatorTable
from anychip.contract.registration import read_options
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import cases
from anychip.ops.check import check_case, compare
from anychip.ops.decide import Decider, MissingOperator
from anychip.ops.oracle import CacheArrays, evaluate
from anychip.ops.oracle.scaled import held, read, scales, with_scales
from anychip.ops.placed import place
from anychip.plan import PageMove
from anychip.run.cache import allocate_cache, free_cache
from anychip.run.host_pages import HostPages

PAGE, HEADS, DIM = 4, 2, 8
SCALED = (DType.INT8, DType.FLOAT8_E4M3)
OPS = ("kv_write", "kv_copy_pages", "paged_attention", "sink_attention")


class HeadsFirst(FakeChip):
    """Declares the other known layout."""

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), cache_layout=HND)


def group_of(dtype, layout=NHD):
    return CacheGroup(2, HEADS, DIM, dtype, PAGE, layout)


def scaled_cases(chip, op, dtype):
    every = (fitted(chip, typed(c, Types(DType.FLOAT32, DType.FLOAT32, dtype))) for c in cases(op))
    return [case for case in every if case is not None]


@pytest.fixture(params=[FakeChip, HeadsFirst])
def chip(request):
    found = request.param.open(0, read_options(request.param, {"memory": "16M"}))
    yield found
    found.close()


@pytest.mark.parametrize("dtype", SCALED)
def test_a_scale_costs_four_bytes_a_vector(dtype):
    group = group_of(dtype)
    assert group.page_bytes == 2 * 2 * PAGE * HEADS * (DIM + 4)
    spec = CacheSpec(group, 3)
    assert (spec.shape, spec.held_shape) == ((3, PAGE, HEADS, DIM), (3, PAGE, HEADS, DIM + 4))
    assert spec.strides == (PAGE * HEADS * (DIM + 4), HEADS * (DIM + 4), DIM + 4, 1)
    assert spec_over(spec.held_shape, dtype) == dataclasses.replace(
        spec, group=dataclasses.replace(group, layers=1)
    )


@pytest.mark.parametrize(("dim", "latent"), [(6, 0), (8, 4)])
def test_vectors_that_cannot_have_a_scale_are_refused(dim, latent):
    with pytest.raises(ValueError, match="a scale behind each vector"):
        CacheGroup(1, 1, dim, DType.INT8, PAGE, latent=latent)


@pytest.mark.parametrize("layout", [NHD, HND])
def test_scales_are_a_view_of_each_half(layout):
    with_one = opened()
    (one, _) = caches = allocate_cache(with_one.memory, group_of(DType.INT8, layout), 3)
    rows = np.random.default_rng(0).normal(size=(3, PAGE, HEADS, DIM))
    packed = held(rows, NUMPY_DTYPES[DType.INT8])
    in_memory = packed.swapaxes(1, 2) if layout == HND else packed
    flat = one.v.view((one.v.size,), (1,))
    with_one.memory.copy_in(flat, host_bytes(np.ascontiguousarray(in_memory)))
    found = np.zeros((3, PAGE, HEADS), np.float32)
    for page, slot, head in np.ndindex(found.shape):
        at = sum(i * s for i, s in zip((page, slot, head), one.v_scale.strides, strict=True))
        number = np.zeros(1, np.float32)
        with_one.memory.copy_out(one.v_scale.view((1,), offset=at), number.data)
        found[page, slot, head] = number[0]
    np.testing.assert_array_equal(found, scales(packed))
    with pytest.raises(ValueError, match="has no scales"):
        _ = allocate_cache(with_one.memory, group_of(DType.FLOAT16), 3)[0].k_scale
    free_cache(with_one.memory, caches)


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize("op", OPS)
def test_the_chip_agrees_with_the_oracle_in_either_layout(chip, op, dtype):
    found = scaled_cases(chip, op, dtype)
    assert len(found) >= 2
    for case in found:
        (implementation,) = chip.operators.of(op)
        with place(chip, op, case.inputs, case.attrs) as placed:
            placed.poison()
            placed.prepare(implementation)()
            chip.queue.synchronize(None)
            verdict = check_case(case, placed.outcome())
            assert placed.damaged() is None
        assert verdict.ok and (case.control is None or verdict.conclusive), verdict.text


@pytest.mark.parametrize(("dtype", "limit"), [(DType.INT8, 0.009), (DType.FLOAT8_E4M3, 0.035)])
def test_what_is_held_is_near_and_the_largest_is_exact(dtype, limit):
    rows = np.random.default_rng(1).normal(size=(50, 64)).astype(np.float32)
    back = read(held(rows, NUMPY_DTYPES[dtype]))
    errors = np.linalg.norm(back - rows, axis=1) / np.linalg.norm(rows, axis=1)
    assert 0.001 < errors.mean() < limit
    top = np.abs(rows).argmax(axis=1)
    np.testing.assert_allclose(back[range(50), top], rows[range(50), top], rtol=1e-6)


@pytest.mark.parametrize("dtype", SCALED)
def test_zeros_tiny_numbers_ties_and_what_is_no_number(dtype):
    chip, kind = opened(), NUMPY_DTYPES[dtype]
    k = np.zeros((5, 1, DIM), np.float32)
    k[1] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -127, 3]
    k[2, 0, 0], k[3, 0, 1] = np.inf, np.nan
    k[4, 0, :3] = 1e-45, -2.8e-45, 2e-43
    cache = CacheArrays(*(np.zeros((2, PAGE, 1, DIM + 4), kind) for _ in range(2)))
    inputs = {"cache": cache, "k": k, "v": k, "slots": np.arange(5, dtype=np.int32)}
    found = run(chip, "kv_write", inputs)["cache"]
    expected = evaluate("kv_write", inputs, {}).written["cache"]
    assert found.k.tobytes() == expected.k.tobytes()
    values = read(found.k).reshape(-1, DIM)
    assert (values[0] == 0).all()
    assert np.isnan(values[2]).all() and np.isnan(values[3]).all()
    assert np.isfinite(values[4]).all()  # 448 numbers of the smallest step have no scale
    if dtype is DType.INT8:
        assert values[4, 2] > 0
        np.testing.assert_array_equal(values[1], [127, 0, 2, 2, 0, -2, -127, 3])


@pytest.mark.parametrize("dtype", SCALED)
def test_a_wrong_scale_and_the_scale_of_the_neighbour_are_noticed(dtype):
    (case,) = (c for c in scaled_cases(opened(), "paged_attention", dtype) if c.name == "decode")
    cache = case.inputs["cache"]
    own = scales(cache.k)
    for wrong in (own * np.float32(1.01), np.roll(own, 1, axis=1), np.roll(own, 1, axis=2)):
        other = CacheArrays(with_scales(cache.k, wrong), cache.v)
        y = evaluate(case.op, {**case.inputs, "cache": other}, case.attrs).outputs[0]
        verdict = compare(case.op, case.inputs, case.attrs, {"y": y}, DType.FLOAT32)
        assert not verdict.ok and verdict.conclusive, verdict.text


def test_pages_go_to_the_host_and_back_whole(chip):
    group = group_of(DType.INT8, chip.capabilities().cache_layout)
    caches = allocate_cache(chip.memory, group, 4)
    source = np.random.default_rng(5)
    halves = [half for cache in caches for half in cache.halves]
    before = [source.integers(0, 256, half.nbytes, np.uint8) for half in halves]
    for half, array in zip(halves, before, strict=True):
        chip.memory.copy_in(half.view((half.size,), (1,)), array.data)
    pages = HostPages(chip.memory, caches, slots=2)
    pages.run([PageMove(2, 1, to_host=True), PageMove(3, 1, to_host=False)])
    for half, array in zip(halves, before, strict=True):
        found = np.zeros_like(array)
        chip.memory.copy_out(half.view((half.size,), (1,)), found.data)
        np.testing.assert_array_equal(found.reshape(4, -1)[3], array.reshape(4, -1)[2])
    free_cache(chip.memory, caches)


def test_no_recipe_reads_scales_and_the_chip_that_composes_offers_none():
    chip = opened(primitives_only=True)
    assert not any(d.is_scaled for d in chip.capabilities().cache_dtypes)
    case = scaled_cases(opened(), "kv_write", DType.INT8)[-1]
    _, call = prepared(opened(), case.op, case.inputs, case.attrs)
    with pytest.raises(MissingOperator, match="no primitive takes the scales of 'cache' in int8"):
        Decider(OperatorTable(()))(call.spec)
