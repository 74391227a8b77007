"""Caches of one byte an element on a torch device: the oracle's bytes, and its attention."""

from __future__ import annotations

import dataclasses

import pytest

from anychip.chips.torch.registration import TorchDeviceChip
from anychip.conform.operator_cases import Types, fitted, typed
from anychip.contract.cache import HND
from anychip.contract.dtype import DType
from anychip.contract.registration import read_options
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.placed import place
from scaled_rows import SCALED, assert_bytes_are_the_oracles

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
    assert_bytes_are_the_oracles(
        lambda inputs: computed(chip, "kv_write", inputs, {})["cache"], dim, dtype
    )


def test_a_device_without_float8_offers_int8_alone(chip):
    assert set(SCALED) <= set(chip.capabilities().cache_dtypes)
    chip._device = "mps:0"
    scaled = [d for d in chip.capabilities().cache_dtypes if d.is_scaled]
    assert scaled == [DType.INT8]
