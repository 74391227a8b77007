"""Weight formats bit for bit against the gguf package and torch's rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anychip.contract.formats import BLOCK_FORMATS
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import convert, dequantize, plain_weight

ENCODED_BY_GGUF = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")
HALVES = {
    "q4_1": (0, 2),
    "q5_1": (0, 2),
    "mxfp4": (),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
"""Where blocks have float16 numbers, if not one at the start."""


def bits(array):
    return np.ascontiguousarray(array).view(np.uint32)


@pytest.mark.parametrize("format", ENCODED_BY_GGUF)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_blocks_equal_the_gguf_package(format, scale):
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[format.upper()]
    values = np.random.default_rng(3).normal(0, scale, (48, 96)).astype(np.float32)
    packed = quants.quantize(values, kind)
    ours = dequantize(HostWeight(format, (48, 96), packed.reshape(-1).data))
    np.testing.assert_array_equal(bits(ours), bits(quants.dequantize(packed, kind)))


def random_blocks(format: str) -> np.ndarray:
    """64 rows of 3 blocks of any bytes, with scales that are finite."""
    nbytes = BLOCK_FORMATS[format][1]
    packed = np.random.default_rng(4).integers(0, 256, (64, 3 * nbytes), np.uint8)
    for at in HALVES.get(format, (0,)):
        packed.reshape(-1, nbytes)[:, at + 1] &= 0xBF
    if format == "mxfp4":
        packed.reshape(-1, nbytes)[:, 0] %= 250  # 6 * 2 ** 122
    return packed


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_any_bytes_equal_the_gguf_package(format):
    from gguf import GGMLQuantizationType, quants

    kind, packed = GGMLQuantizationType[format.upper()], random_blocks(format)
    shape = (64, 3 * BLOCK_FORMATS[format][0])
    theirs = quants.dequantize(packed, kind)
    ours = dequantize(HostWeight(format, shape, packed.reshape(-1).data))
    np.testing.assert_array_equal(bits(ours), bits(theirs))
    packed[:, 5] ^= 1  # the comparison sees a bit
    other = dequantize(HostWeight(format, shape, packed.reshape(-1).data))
    assert not np.array_equal(bits(other), bits(theirs))


@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_rounding_equals_torchs(format):
    rng = np.random.default_rng(5)
    random = rng.normal(0, 1, 4096) * 10.0 ** rng.integers(-7, 4, 4096)
    ties = (np.arange(1, 512) * 2 + 1) / 512  # halfway between bfloat16 neighbours, often
    edge = [0.0, -0.0, np.inf, -np.inf, 65504.0, 6e-8, 3e-8, 1e-40]
    values = np.concatenate([random, ties, -ties, edge]).astype(np.float32)
    ours = plain_weight(values, format)
    theirs = torch.from_numpy(values).to(getattr(torch, format))
    np.testing.assert_array_equal(
        np.frombuffer(ours.data, np.uint16), theirs.view(torch.int16).numpy().view(np.uint16)
    )
    np.testing.assert_array_equal(bits(dequantize(ours)), bits(theirs.float().numpy()))


def test_convert_keeps_what_fits_and_shape():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    weight = plain_weight(values)
    assert convert(weight, "float32") is weight
    half = convert(weight, "float16")
    assert (half.format, half.shape, half.data.nbytes) == ("float16", (3, 4), 24)
    np.testing.assert_array_equal(dequantize(half), values)


def test_values_beyond_float16_are_refused():
    with pytest.raises(CheckpointError, match=r"2 values.*65504"):
        convert(plain_weight(np.array([[1e5, -7e4, 1.0]], np.float32)), "float16")


def test_unknown_formats_and_wrong_sizes():
    data = memoryview(bytes(10))
    with pytest.raises(UnsupportedModel, match=r"'q8_K'.*q8_0"):
        dequantize(HostWeight("q8_K", (1, 256), data))
    with pytest.raises(UnsupportedModel, match="target format 'q8_0'"):
        convert(HostWeight("float16", (1, 5), data), "q8_0")
    with pytest.raises(CheckpointError, match="needs 12 bytes, has 10"):
        dequantize(HostWeight("float16", (2, 3), data))
