"""Weight formats bit for bit against the gguf package and torch's rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import convert, dequantize, plain_weight

BLOCK = ("q8_0", "q4_0", "q4_1")


def bits(array):
    return np.ascontiguousarray(array).view(np.uint32)


@pytest.mark.parametrize("format", BLOCK)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_blocks_equal_the_gguf_package(format, scale):
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[format.upper()]
    values = np.random.default_rng(3).normal(0, scale, (48, 96)).astype(np.float32)
    packed = quants.quantize(values, kind)
    ours = dequantize(HostWeight(format, (48, 96), packed.reshape(-1).data))
    np.testing.assert_array_equal(bits(ours), bits(quants.dequantize(packed, kind)))


@pytest.mark.parametrize("format", BLOCK)
def test_any_bytes_equal_the_gguf_package(format):
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[format.upper()]
    size = {"q8_0": 34, "q4_0": 18, "q4_1": 20}[format]
    packed = np.random.default_rng(4).integers(0, 256, (64, 3 * size), np.uint8)
    packed.reshape(-1, size)[:, [1, 3]] &= 0x3F  # finite scales
    ours = dequantize(HostWeight(format, (64, 96), packed.reshape(-1).data))
    np.testing.assert_array_equal(bits(ours), bits(quants.dequantize(packed, kind)))


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
    with pytest.raises(UnsupportedModel, match=r"'q4_K'.*q8_0"):
        dequantize(HostWeight("q4_K", (1, 256), data))
    with pytest.raises(UnsupportedModel, match="target format 'q8_0'"):
        convert(HostWeight("float16", (1, 5), data), "q8_0")
    with pytest.raises(CheckpointError, match="needs 12 bytes, has 10"):
        dequantize(HostWeight("float16", (2, 3), data))
