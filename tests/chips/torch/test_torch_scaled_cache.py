"""Caches of one byte an element on a torch device: the oracle's bytes, and its attention."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from anychip.chips.torch.registration import TorchDeviceChip
from anychip.conform.operator_cases import Types, fitted, typed
from anychip.contract.cache import HND
from anychip.contract.dtype import DType
from anychip.contract.registration import read_options
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.scaled import held, in_dtype
from anychip.ops.placed import place

SCALED = (DType.INT8, DType.FLOAT8_E4M3)
F32 = DType.FLOAT32


class HeadsFirst(TorchDeviceChip):
    """Declares the other known layout."""

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), cache_layout=HND)


@pytest.fixture(params=[TorchDeviceChip, HeadsFirst])
def either(request):
    found = request.param.open(0, read_options(request.param, {}))
    yield found
    found.close()


def computed(chip, op, inputs, attrs):
    (kernel,) = chip.operators.of(op)
    with place(chip, op, inputs, attrs) as placed:
        assert kernel.declines(placed.call.spec) is None
        placed.poison()
        placed.prepare(kernel)()
        chip.queue.synchronize(None)
        assert placed.damaged() is None
        return placed.outcome()


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize("op", ["kv_write", "kv_copy_pages", "paged_attention", "sink_attention"])
def test_every_case_agrees_with_the_oracle_in_either_layout(either, op, dtype):
    activation = F32 if dtype is DType.INT8 else DType.BFLOAT16
    found = [fitted(either, typed(case, Types(activation, F32, dtype))) for case in cases(op)]
    assert sum(case is not None for case in found) >= 3
    for case in filter(None, found):
        verdict = check_case(case, computed(either, op, case.inputs, case.attrs))
        assert verdict.ok and (case.control is None or verdict.conclusive), verdict.text


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize("dim", [4, 20, 64])
def test_bytes_are_the_oracles_for_numbers_of_every_size(chip, dim, dtype):
    source, kind = np.random.default_rng(dim), NUMPY_DTYPES[dtype]
    shape = (200, 2, dim)
    k, v = (
        source.normal(size=shape) * 10 ** source.uniform(-6, 0, shape) * 10.0 ** (9 * sign)
        for sign in (-1, 1)
    )
    k[3], v[4, 1] = 0.0, -0.0
    k[5, 1, 2], v[6, 0, 1], v[7, 1, 0] = np.inf, np.nan, -np.inf
    k[8], k[9, 0, :3] = 1e-44, (1e-45, -2.8e-45, 2e-43)
    k, v = k.astype(np.float32), v.astype(np.float32)
    rows = np.zeros((16, 16, 2, dim), np.float32)
    cache = in_dtype(CacheArrays(rows, rows), kind)
    slots = source.permutation(256)[:200].astype(np.int32)
    found = computed(chip, "kv_write", {"cache": cache, "k": k, "v": v, "slots": slots}, {})
    for half, given in ((found["cache"].k, k), (found["cache"].v, v)):
        flat = half.reshape(256, 2, dim + 4)
        assert flat[slots].tobytes() == held(given, kind).tobytes()


def test_a_device_without_float8_offers_int8_alone(chip):
    assert set(SCALED) <= set(chip.capabilities().cache_dtypes)
    chip._device = "mps:0"
    scaled = [d for d in chip.capabilities().cache_dtypes if d.is_scaled]
    assert scaled == [DType.INT8]
