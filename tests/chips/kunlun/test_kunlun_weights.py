"""Weights: dense, parts stacked, their dtype kept."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.weights import HostWeight, WeightUse
from anychip.hostops import NUMPY_DTYPES

LINEAR = frozenset({WeightUse.LINEAR})


def part(dtype, rows, columns=8, start=0):
    values = (np.arange(rows * columns) + start).reshape(rows, columns) / 4
    array = values.astype(NUMPY_DTYPES[dtype])
    return HostWeight(dtype.value, array.shape, array.reshape(-1).view(np.uint8).data), array


def held(chip, weight):
    found = np.zeros(weight.spec.shape, NUMPY_DTYPES[DType(weight.spec.format)])
    chip.memory.copy_out(weight.tensors[0], found.reshape(-1).view(np.uint8).data)
    return found


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16])
def test_parts_are_stacked_as_they_are(chip, dtype):
    (first, a), (second, b) = part(dtype, 3), part(dtype, 5, start=100)
    weight = chip.weights.prepare((first, second), LINEAR)
    assert weight.spec == chip.weights.plan((dtype.value,) * 2, ((3, 8), (5, 8)), LINEAR)
    assert (weight.spec.format, weight.spec.dense) == (dtype.value, True)
    assert weight.dense is weight.tensors[0] and weight.spec.nbytes == 64 * dtype.itemsize
    assert (held(chip, weight) == np.concatenate([a, b])).all()
    chip.weights.release(weight)


def test_parts_of_two_types_become_float32(chip):
    (first, a), (second, b) = part(DType.BFLOAT16, 2), part(DType.FLOAT16, 2)
    weight = chip.weights.prepare((first, second), LINEAR)
    assert weight.spec.format == "float32"
    both = np.concatenate([a.astype(np.float32), b.astype(np.float32)])
    assert (held(chip, weight) == both).all()
    chip.weights.release(weight)


def test_the_host_bytes_may_change_afterwards(chip):
    given, array = part(DType.FLOAT32, 4)
    weight = chip.weights.prepare((given,), LINEAR)
    wanted = array.copy()
    array[...] = -1
    assert (held(chip, weight) == wanted).all()
    chip.weights.release(weight)


def test_releasing_gives_the_memory_back(chip):
    used = chip.memory.info().used
    given, _ = part(DType.FLOAT32, 1024, 1024)
    weight = chip.weights.prepare((given,), LINEAR)
    assert chip.memory.info().used - used >= weight.spec.nbytes
    chip.weights.release(weight)
    assert chip.memory.info().used == used


REFUSED = {
    "weight format q4_1": (("q4_1",), ((4, 32),)),
    "do not stack": (("float32",) * 2, ((4, 8), (4, 9))),
    "parts of shapes": ((), ()),
}


@pytest.mark.parametrize(("text", "asked"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_packed_is_refused(chip, text, asked):
    with pytest.raises(ChipError, match=text) as caught:
        chip.weights.plan(*asked, LINEAR)
    assert caught.value.fact.kind is ErrorKind.INVALID


def test_a_part_of_the_wrong_length_is_refused_before_memory_is_taken(chip):
    used = chip.memory.info().used
    whole, _ = part(DType.FLOAT32, 4)
    short = HostWeight("float32", (5, 8), whole.data)
    with pytest.raises(ChipError, match=r"128 bytes, not 160"):
        chip.weights.prepare((whole, short), LINEAR)
    assert chip.memory.info().used == used
