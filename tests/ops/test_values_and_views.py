"""Views of symbols: shapes, strides and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.contract.dtype import DType
from anychip.contract.weights import WeightSpec
from anychip.ops.value import Value, WeightRef, given


def value(*shape: int) -> Value:
    return given("input", "x", shape, DType.FLOAT32)


def read(v: Value, memory: np.ndarray) -> np.ndarray:
    strides = tuple(4 * s for s in v.spec.strides)
    return np.ndarray(v.shape, np.float32, memory.data, 4 * v.offset, strides)


def test_views_read_what_numpy_reads() -> None:
    memory = np.arange(60, dtype=np.float32)
    array = memory.reshape(3, 20)
    v = value(3, 20)
    assert np.array_equal(read(v.narrow(1, 4, 8), memory), array[:, 4:12])
    assert np.array_equal(
        read(v.narrow(1, 4, 8).reshape(3, 2, 4), memory), array[:, 4:12].reshape(3, 2, 4)
    )
    assert np.array_equal(
        read(v.reshape(3, 4, 5).transpose(1, 0, 2), memory), array.reshape(3, 4, 5).swapaxes(0, 1)
    )
    stretched = v.narrow(0, 1, 1).broadcast_to(2, 3, 20)
    assert np.array_equal(read(stretched, memory), np.broadcast_to(array[1:2], (2, 3, 20)))


def test_contiguity_is_told() -> None:
    v = value(3, 20)
    assert v.is_contiguous
    assert not v.narrow(1, 0, 8).is_contiguous
    assert v.narrow(1, 0, 8).spec.has_contiguous_rows
    assert not v.transpose(1, 0).spec.has_contiguous_rows
    assert v.narrow(0, 1, 2).is_contiguous
    assert v.narrow(0, 0, 0).is_contiguous


@pytest.mark.parametrize(
    "wrong",
    [
        lambda v: v.reshape(7, 7),
        lambda v: v.narrow(1, 15, 6),
        lambda v: v.narrow(1, -1, 2),
        lambda v: v.transpose(1, 0).reshape(60),
        lambda v: v.broadcast_to(3, 21),
    ],
)
def test_impossible_views_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"3, 20|narrow|20, 3"):
        wrong(value(3, 20))


def test_packed_weights_have_no_plain_tensor() -> None:
    with pytest.raises(ValueError, match="q8_0"):
        _ = WeightRef("down", WeightSpec("q8_0", (4, 32), 136, dense=False)).dense
