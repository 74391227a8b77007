"""Readers against the packages that own the formats: AutoGPTQ, AutoAWQ, compressed-tensors, torch,
transformers, ml_dtypes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from anychip.contract.formats import is_quantized
from anychip.contract.weights import HostWeight
from anychip.model.folder import Folder
from anychip.model.formats import dequantize
from anychip.model.quantized.float8 import e4m3
from anychip.model.quantized.store import QuantizedFolder

HERE = Path(__file__).parent
RECORDED = {**np.load(HERE / "compressed_tensors.npz"), **np.load(HERE / "gptq_awq.npz")}
"""What record_compressed_tensors.py and record_gptq_awq.py wrote."""

FORMATS = {
    "packed4": "u4g32",
    "packed4_asymmetric": "u4g64",
    "packed4_channel": "u4g64",
    "packed8_channel": "u8g64",
    "int8": "w8a8",
    "int8_tensor": "w8a8",
    "int8_asymmetric": "int8 with groups or zero points, for int8",
    "int8_static": "w8a8_static",
    "float8": "fp8 per channel",
    "float8_tensor": "fp8 per tensor",
    "float8_block": "fp8 in 16x32 blocks",
}


OLDER = {
    "gptq4": ("u4g32", {"quant_method": "gptq", "bits": 4, "group_size": 32}),
    "gptq4_act_order": (
        "u4g32o",
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
    ),
    "gptq8": ("u8g32", {"quant_method": "gptq", "bits": 8, "group_size": 32}),
    "awq": ("u4g32", {"quant_method": "awq", "bits": 4, "group_size": 32}),
}


def recorded(name: str, config: dict[str, Any], folder: Path) -> QuantizedFolder:
    """The case as a folder of one linear, "layer"."""
    tensors = {}
    for key in RECORDED:
        case, _, ending = key.partition(".tensor.")
        if case == name and ending:
            array = torch.from_numpy(RECORDED[key].copy())
            is_small = name.startswith("float8") and ending == "weight"
            tensors[f"layer.{ending}"] = array.view(torch.float8_e4m3fn) if is_small else array
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text("{}")
    return QuantizedFolder(Folder(folder), config)


def compressed(name: str, folder: Path) -> QuantizedFolder:
    settings = json.loads(bytes(RECORDED[f"{name}.settings"]))
    return recorded(name, {"quant_method": "compressed-tensors", **settings}, folder)


def assert_means(store: QuantizedFolder, format: str, meant: np.ndarray) -> None:
    """The only weight has this format and these values, and a single bit is told apart."""
    assert list(store.tensors) == ["layer.weight"]
    assert store.entry("layer.weight").format == format
    weight = store.read("layer.weight")
    assert weight.format == (format if is_quantized(format) else "float32")
    np.testing.assert_array_equal(dequantize(weight), meant)
    raw = np.frombuffer(weight.data, np.uint8).copy()
    raw[-5] ^= 2
    other = dequantize(HostWeight(weight.format, weight.shape, raw.data))
    assert not np.array_equal(other, meant)


@pytest.mark.parametrize("name", OLDER)
def test_linears_are_what_autogptq_and_autoawq_read(name, tmp_path):
    format, config = OLDER[name]
    assert_means(recorded(name, config, tmp_path), format, RECORDED[f"{name}.meant"])


@pytest.mark.parametrize("name", FORMATS)
def test_linears_are_what_compressed_tensors_says(name, tmp_path):
    assert_means(compressed(name, tmp_path), FORMATS[name], RECORDED[f"{name}.meant"])


def test_static_rounding_stands_before_the_rows(tmp_path):
    weight = compressed("int8_static", tmp_path).read("layer.weight")
    assert np.frombuffer(weight.data[:4], "<f4")[0] == np.float32(0.05)
    assert np.frombuffer(weight.data[4:8], "<i4")[0] == 4


def test_all_numbers_of_e4m3_are_torchs_and_ml_dtypes():
    byte = torch.arange(256, dtype=torch.uint8)
    theirs = byte.view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(e4m3(), theirs)
    others = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(e4m3(), others)
    np.testing.assert_array_equal(np.signbit(e4m3())[:127], False)
    np.testing.assert_array_equal(np.signbit(e4m3())[128:255], True)
    assert np.isnan(e4m3()).sum() == 2


def test_experts_in_mxfp4_are_what_transformers_makes_of_them(tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(1)
    blocks = torch.randint(0, 256, (2, 6, 3, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 140, (2, 6, 3), generator=generator, dtype=torch.uint8)
    meant = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text("{}")
    store = QuantizedFolder(Folder(tmp_path), {"quant_method": "mxfp4"})
    weight = store.read(name)
    assert (weight.format, weight.shape) == ("mxfp4", (2, 6, 96))
    np.testing.assert_array_equal(dequantize(weight), meant.numpy())
    swapped = dequantize(weight).reshape(2, 6, 3, 2, 16).swapaxes(3, 4).reshape(2, 6, 96)
    assert not np.array_equal(swapped, meant.numpy())
