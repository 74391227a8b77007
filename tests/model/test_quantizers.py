"""Every quantizer is undone by its dequantizer, up to the error that its bits allow."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from anychip.contract.formats import BLOCK_FORMATS, W8A8, format_bytes
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError
from anychip.model.formats import dequantize
from anychip.model.packing.int8 import NORMED
from anychip.model.quantize import quantize

ERRORS = {
    "q8_0": 0.006,
    "q4_0": 0.11,
    "q4_1": 0.09,
    "q5_0": 0.055,
    "q5_1": 0.045,
    "iq4_nl": 0.10,
    "mxfp4": 0.14,
    "q2_k": 0.36,
    "q3_k": 0.20,
    "q4_k": 0.095,
    "q5_k": 0.046,
    "q6_k": 0.025,
    "u4g32": 0.09,
    "u4g64": 0.10,
    "u4g128": 0.12,
    "u4g128o": 0.12,
    "u8g32": 0.0055,
    "u8g128": 0.0075,
    "u8g32o": 0.0055,
    "w8a8": 0.01,
    "w8a8_static": 0.01,
}
"""Relative L2 of normal values: a step over the square root of 12, for a block's usual range."""


def normal(rows: int = 24, columns: int = 512) -> np.ndarray:
    return np.random.default_rng(11).standard_normal((rows, columns), np.float32)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def test_every_format_is_here():
    assert {*BLOCK_FORMATS, *W8A8} < set(ERRORS)


@pytest.mark.parametrize("format", ERRORS)
def test_values_come_back_within_the_error_of_the_format(format):
    given = normal()
    weight = quantize(given, format)
    assert weight.data.nbytes == format_bytes(format, given.shape)
    error = distance(dequantize(weight), given)
    assert ERRORS[format] / 2 < error < ERRORS[format]


@pytest.mark.parametrize("format", ERRORS)
def test_zeros_stay_zeros_and_scales_of_any_size_are_met(format):
    given = normal() * np.logspace(-3, 2, 24, dtype=np.float32)[:, None]
    given[3] = 0
    back = dequantize(quantize(given, format))
    assert not back[3].any()
    rest = [row for row in range(24) if row != 3]
    # An order that suits all rows suits the small ones less, but every row has its own scale.
    worst = max(distance(back[row], given[row]) for row in rest)
    assert worst < 1.5 * ERRORS[format]


@pytest.mark.parametrize("format", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"])
def test_the_gguf_package_reads_what_is_written_for_it(format):
    from gguf import GGMLQuantizationType, quants

    given = normal()
    weight = quantize(given, format)
    packed = np.frombuffer(weight.data, np.uint8).reshape(len(given), -1)
    theirs = quants.dequantize(packed, GGMLQuantizationType[format.upper()])
    np.testing.assert_array_equal(dequantize(weight), theirs)


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_the_gguf_package_writes_the_same_bytes_ties_included(format):
    """Values of bfloat16 have many ties: half of a block's largest one is such."""
    from gguf import GGMLQuantizationType, quants

    given = normal(200).astype(ml_dtypes.bfloat16).astype(np.float32)
    theirs = quants.quantize(given, GGMLQuantizationType[format.upper()])
    assert bytes(quantize(given, format).data) == theirs.tobytes()


@pytest.mark.parametrize("format", ["w8a8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_values_too_small_for_a_scale_become_zeros(format):
    given = normal(4, 64) * np.float32(1e-41)
    given[1] = normal(1, 64)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        back = dequantize(quantize(given, format))
    assert np.abs(back[[0, 2, 3]]).max() < 1e-37
    assert distance(back[1], given[1]) < 1.5 * ERRORS[format]


def by_the_definition(weight: HostWeight, bits: int, group: int, ordered: bool) -> np.ndarray:
    """One element after the other, as contract/formats.py tells it."""
    rows, columns = weight.shape
    raw, at = bytes(weight.data), 0
    order = list(range(columns))
    if ordered:
        order, at = np.frombuffer(raw[: 4 * columns], "<i4").tolist(), 4 * columns
    out = np.zeros(weight.shape, np.float32)
    for row in range(rows):
        for start in range(0, columns, group):
            (scale,), zero = np.frombuffer(raw[at : at + 2], "<f2"), raw[at + 2]
            at += 3
            for i in range(group):
                if bits == 8:
                    code = raw[at + i]
                else:
                    byte = raw[at + i // 32 * 16 + i % 16]
                    code = byte >> 4 if i % 32 >= 16 else byte & 15
                out[row, order[start + i]] = np.float32(scale) * np.float32(code - zero)
            at += group * bits // 8
    assert at == len(raw)
    return out


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (8, 32), (4, 128), (8, 128)])
def test_grouped_bytes_mean_what_the_contract_says(bits, group, ordered):
    given = normal(3, 256)
    weight = quantize(given, f"u{bits}g{group}{'o' if ordered else ''}")
    wanted = by_the_definition(weight, bits, group, ordered)
    np.testing.assert_array_equal(dequantize(weight), wanted)
    assert distance(wanted, given) < 0.15
    assert distance(wanted[:, ::-1], given) > 1


def test_an_order_that_is_none_is_refused():
    weight = quantize(normal(2, 64), "u4g32o")
    raw = bytearray(weight.data)
    raw[:4] = raw[4:8]  # one column twice, another not at all
    with pytest.raises(CheckpointError, match="order of its columns is not one of all 64"):
        dequantize(HostWeight(weight.format, weight.shape, memoryview(raw)))


@pytest.mark.parametrize("format", W8A8)
def test_int8_rows_mean_what_the_contract_says(format):
    given = normal(5, 48)
    weight = quantize(given, format)
    raw = bytes(weight.data)
    if format == "w8a8_static":
        assert np.frombuffer(raw[:4], "<f4")[0] == NORMED.scale
        assert np.frombuffer(raw[4:8], "<i4")[0] == NORMED.zero
        raw = raw[8:]
    for row in range(5):
        start = row * 52
        scale = np.frombuffer(raw[start : start + 4], "<f4")[0]
        counts = np.frombuffer(raw[start + 4 : start + 52], np.int8)
        np.testing.assert_array_equal(dequantize(weight)[row], counts.astype(np.float32) * scale)


@pytest.mark.parametrize("format", ["q4_k", "u4g128", "u8g64o"])
def test_rows_that_fill_no_blocks_are_refused(format):
    with pytest.raises(CheckpointError, match="rows of 96 elements do not fill blocks"):
        quantize(normal(2, 96), format)
    with pytest.raises(CheckpointError, match="is not whole blocks"):
        dequantize(HostWeight(format, (2, 96), memoryview(b"")))
