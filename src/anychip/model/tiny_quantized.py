"""Linears of a tiny Hugging Face folder in fewer bits: as GPTQ and compressed-tensors write them.

What is written here, `quantized/` reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anychip.contract.formats import Grouped, grouped
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.errors import unsupported
from anychip.model.formats import Bytes, Floats
from anychip.model.packing.fields import half
from anychip.model.packing.grouped import unpacked_codes
from anychip.model.quantize import quantize

W8A8 = "w8a8"
FOLDER_FORMATS = ("u4g32", "u4g64", "u4g128", "u4g128o", "u8g32", "u8g64", "u8g128", W8A8)
"""Such as these: grouped ones as GPTQ, with act-order where ordered; int8 with dynamic products."""


def quantization_config(format: str) -> dict[str, Any]:
    """What config.json says. Raises UnsupportedModel for a format that no folder here has."""
    kind = grouped(format)
    if kind is not None:
        return {
            "quant_method": "gptq",
            "bits": kind.bits,
            "group_size": kind.group,
            "desc_act": kind.ordered,
            "checkpoint_format": "gptq_v2",
        }
    if format != W8A8:
        raise unsupported("format of a quantized folder", format, FOLDER_FORMATS)
    int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**int8, "strategy": "channel"},
        "input_activations": {**int8, "strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
    }


def quantized_linear(module: str, values: Floats, format: str) -> dict[str, HostWeight]:
    """Tensors of one linear float32 [N, K]. module: its name, without `.weight`.

    Raises CheckpointError where K is not whole groups.
    """
    raw = np.frombuffer(quantize(values, format).data, np.uint8)
    kind = grouped(format)
    if kind is not None:
        return _gptq(module, kind, raw, values.shape)
    rows = raw.reshape(len(values), -1)
    scales = np.ascontiguousarray(rows[:, :4]).view("<f4")
    return {
        f"{module}.weight": _tensor("int8", rows[:, 4:].view(np.int8)),
        f"{module}.weight_scale": _tensor("float32", scales),
    }


def _gptq(module: str, kind: Grouped, raw: Bytes, shape: Shape) -> dict[str, HostWeight]:
    """A column of an ordered weight stands where it was; `g_idx` says its group."""
    n, k = shape
    head = 4 * k if kind.ordered else 0
    order = raw[:head].view("<i4") if kind.ordered else np.arange(k, dtype=np.int32)
    groups = raw[head:].reshape(-1, kind.group_bytes)
    codes, index = np.empty((n, k), np.uint8), np.empty(k, np.int32)
    codes[:, order] = unpacked_codes(kind, groups[:, 3:]).reshape(n, k)
    index[order] = np.arange(k, dtype=np.int32) // kind.group
    zeros = np.ascontiguousarray(groups[:, 2].reshape(n, -1).T)
    return {
        f"{module}.qweight": _tensor("int32", _words(codes, kind.bits).T),
        f"{module}.qzeros": _tensor("int32", _words(zeros, kind.bits)),
        f"{module}.scales": _tensor("float16", half(groups, 0).reshape(n, -1).T.astype("<f2")),
        f"{module}.g_idx": _tensor("int32", index),
    }


def _words(numbers: Bytes, bits: int) -> np.ndarray:
    """[rows, numbers] -> int32 [rows, numbers * bits / 32]; the first lie in the lowest bits."""
    whole = numbers if bits == 8 else numbers[:, 0::2] | np.left_shift(numbers[:, 1::2], 4)
    return np.ascontiguousarray(whole).view("<i4")


def _tensor(format: str, values: np.ndarray) -> HostWeight:
    flat = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return HostWeight(format, tuple(values.shape), flat.data.toreadonly())
