"""Views: sizes, strides, and that none leaves its buffer."""

from __future__ import annotations

import pytest

from anychip.contract.dtype import DType
from anychip.contract.tensor import Buffer, IndexPair, Tensor, TensorSpec, contiguous_strides

F32 = DType.FLOAT32


def test_strides_are_row_major_by_default():
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    spec = TensorSpec((2, 3, 4), DType.BFLOAT16)
    assert spec.strides == (12, 4, 1) and spec.size == 24 and spec.nbytes == 48
    assert TensorSpec((), F32).nbytes == 4


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous", "rows"),
    [
        ((2, 3), (3, 1), True, True),
        ((2, 3), (8, 1), False, True),
        ((2, 3), (1, 2), False, False),
        ((1, 3), (99, 1), True, True),
        ((3, 1), (1, 7), True, True),
        ((2, 3), (0, 1), False, True),
        ((0, 3), (1, 9), True, True),
        ((2, 3, 4), (24, 4, 1), False, True),
        ((2, 3, 4), (24, 8, 1), False, False),
        ((4,), (2,), False, False),
        ((), (), True, True),
    ],
)
def test_layouts(shape, strides, contiguous, rows):
    spec = TensorSpec(shape, F32, strides)
    assert spec.is_contiguous is contiguous
    assert spec.has_contiguous_rows is rows


def test_view_that_just_fits_and_one_that_does_not():
    buffer = Buffer(0, 64)
    assert Tensor((4, 4), F32, buffer=buffer).extent_bytes == 64
    assert Tensor((3, 2), F32, (6, 1), buffer=buffer, offset=8).extent_bytes == 56
    for shape, strides, offset in (((4, 5), (), 0), ((4, 4), (), 4), ((3, 2), (7, 1), 8)):
        with pytest.raises(ValueError, match="past its buffer of 64 bytes"):
            Tensor(shape, F32, strides, buffer=buffer, offset=offset)
    with pytest.raises(ValueError, match="at byte -4"):
        Tensor((1,), F32, buffer=buffer, offset=-4)


def test_empty_views_need_no_memory():
    assert Tensor((0, 8), F32, buffer=Buffer(0, 0)).extent_bytes == 0


def test_view_counts_elements_from_its_own_start():
    tensor = Tensor((4,), F32, buffer=Buffer(0, 64), offset=16)
    part = tensor.view((2,), offset=2)
    assert part.buffer is tensor.buffer and part.offset == 24 and part.dtype is F32
    assert tensor.view((3, 4), (0, 1)).extent_bytes == 16
    with pytest.raises(ValueError, match="past its buffer"):
        tensor.view((13,))


def test_specs_compare_by_value_and_tensors_by_identity():
    assert TensorSpec((2,), F32) == TensorSpec((2,), F32, (1,)) != TensorSpec((2,), F32, (2,))
    buffer = Buffer(0, 8)
    assert Tensor((2,), F32, buffer=buffer) != Tensor((2,), F32, buffer=buffer)
    assert Tensor((2,), F32, buffer=buffer).spec == TensorSpec((2,), F32)


def test_index_pair_has_the_shape_of_its_device_half():
    device = Tensor((3,), DType.INT32, buffer=Buffer(0, 12))
    assert IndexPair(memoryview(bytearray(12)), device).spec == TensorSpec((3,), DType.INT32)
