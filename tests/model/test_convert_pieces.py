"""Conversions take some rows at a time: the same values, and no whole copy in float32."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from anychip.contract.formats import format_bytes
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError
from anychip.model.formats import STEP_BYTES, convert, dequantize, pieces, plain_weight
from anychip.model.quantize import into_format, quantize

ROWS, K = 6000, 1024  # 24.6 MB in float32: several steps, and a rest


def weight(format: str) -> HostWeight:
    values = np.random.default_rng(3).standard_normal((ROWS, K), np.float32)
    return plain_weight(values, format) if "float" in format else quantize(values, format)


def peak(work) -> int:
    """Most bytes that were held beside what was there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format", ["bfloat16", "float32", "q8_0", "q4_0"])
def test_the_values_are_those_of_the_whole_and_memory_is_not(format):
    given, into = weight(format), "float16" if format != "q4_0" else "bfloat16"
    found = convert(given, into)
    expected = plain_weight(dequantize(given), into)
    assert found.shape == expected.shape and found.format == into
    assert bytes(found.data) == bytes(expected.data)

    result = format_bytes(into, given.shape)
    assert peak(lambda: convert(given, into)) < result + 8 * STEP_BYTES < result + ROWS * K * 4 * 2
    if format != "float32":  # which is a view
        assert peak(lambda: plain_weight(dequantize(given), into)) >= result + ROWS * K * 4


def test_pieces_are_views_of_all_rows():
    given = weight("bfloat16")
    parts = list(pieces(given))
    assert len(parts) == -(-ROWS * K * 4 // STEP_BYTES)
    assert sum(part.shape[0] for part in parts) == ROWS
    assert b"".join(bytes(part.data) for part in parts) == bytes(given.data)
    assert all(part.data.obj is given.data.obj for part in parts)


def test_who_waits_is_told_what_was_read():
    told: list[int] = []
    given = weight("q8_0")
    convert(given, "float32", told.append)
    assert sum(told) == given.data.nbytes and len(told) > 4


@pytest.mark.parametrize("shape", [(), (7,), (3, 5, 64)])
def test_any_number_of_dimensions(shape):
    values = np.random.default_rng(1).standard_normal(shape, np.float32).reshape(shape)
    found = convert(plain_weight(values), "bfloat16")
    assert found.shape == shape
    assert bytes(found.data) == bytes(plain_weight(values, "bfloat16").data)


@pytest.mark.parametrize("into", ["w8a8", "q8_0", "q5_1", "q4_0"])
def test_quantizing_takes_some_rows_at_a_time_too(into):
    given, told = weight("bfloat16"), list[int]()
    found = into_format(given, into, told.append)
    expected = quantize(dequantize(given), into)
    assert found.shape == expected.shape and found.format == into
    assert bytes(found.data) == bytes(expected.data)
    assert sum(told) == given.data.nbytes and len(told) > 4
    assert into_format(found, into) is found

    result = format_bytes(into, given.shape)
    assert peak(lambda: into_format(given, into)) < result + 8 * STEP_BYTES < ROWS * K * 4
    assert peak(lambda: quantize(dequantize(given), into)) > result + ROWS * K * 4


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_no_scale_can_be_found_for_is_refused(value):
    values = np.ones((64, 64), np.float32)
    values[63, 5] = value
    with pytest.raises(CheckpointError, match="infinite or not a number, which w8a8 has no scale"):
        into_format(plain_weight(values, "bfloat16"), "w8a8")
