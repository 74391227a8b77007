"""Quantized folders linear by linear, against the values that their whole numbers mean."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.torch import load_file

import quantized_folders as schemes
from anychip.contract.formats import format_bytes, is_quantized
from anychip.model.folder import Folder
from anychip.model.formats import dequantize
from anychip.model.quantized.store import QuantizedFolder

CONVERTED = {
    "packed4_float32": "int4 with scales beyond float16",
    "packed4_groups_of_16": "int4 in groups of 16",
}


def opened(folder) -> QuantizedFolder:
    config = json.loads((folder / "config.json").read_text())
    return QuantizedFolder(Folder(folder), config["quantization_config"])


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", schemes.SCHEMES)
def test_every_linear_is_what_its_numbers_mean(name, tmp_path):
    scheme = schemes.SCHEMES[name]
    quantized, plain = schemes.write_pair(tmp_path, scheme)
    store, wanted = opened(quantized), load_file(plain / "model.safetensors")
    assert store.tensors.keys() == wanted.keys()
    for linear in schemes.linears(wanted):
        entry, weight = store.entry(f"{linear}.weight"), store.read(f"{linear}.weight")
        told = CONVERTED.get(name, scheme.told)
        if told == "u4g64" and name == "gptq4_channel" and entry.shape[1] == 128:
            told = "u4g128"
        if name in ("packed8_channel", "int8_weights") and entry.shape[1] == 128:
            told = "u8g128"
        assert entry.format == told
        if is_quantized(told):
            assert weight.format == told
            assert weight.data.nbytes == format_bytes(told, entry.shape)
        else:
            assert weight.format == "float32"
        found, meant = dequantize(weight), wanted[f"{linear}.weight"].numpy()
        np.testing.assert_array_equal(found, meant)
        assert distance(found[::-1], meant) > 0.5
