"""Records what the compressed-tensors package makes of small weights: compressed_tensors.npz.

Run where that package is installed: `python tests/model/record_compressed_tensors.py`. The tests
read the file, so that they need neither the package nor its version.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

ROWS, COLUMNS = 12, 64
TOKEN = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
STATIC = {"num_bits": 8, "symmetric": False, "strategy": "tensor", "dynamic": False}
PACKED, WHOLE, FLOAT = "pack-quantized", "int-quantized", "float-quantized"
CASES = {
    "packed4": (PACKED, {"num_bits": 4, "group_size": 32}, None),
    "packed4_asymmetric": (PACKED, {"num_bits": 4, "group_size": 64, "symmetric": False}, None),
    "packed4_channel": (PACKED, {"num_bits": 4, "strategy": "channel"}, None),
    "packed8_channel": (
        PACKED,
        {"num_bits": 8, "strategy": "channel", "symmetric": False},
        None,
    ),
    "int8": (WHOLE, {"strategy": "channel"}, TOKEN),
    "int8_tensor": (WHOLE, {"strategy": "tensor"}, TOKEN),
    "int8_asymmetric": (WHOLE, {"strategy": "channel", "symmetric": False}, TOKEN),
    "int8_static": (WHOLE, {"strategy": "channel"}, STATIC),
    "float8": (FLOAT, {"type": "float", "strategy": "channel"}, {**TOKEN, "type": "float"}),
    "float8_tensor": (FLOAT, {"type": "float", "strategy": "tensor"}, {**TOKEN, "type": "float"}),
    "float8_block": (
        FLOAT,
        {"type": "float", "strategy": "block", "block_structure": [16, 32]},
        {**TOKEN, "type": "float"},
    ),
}


def record(name: str) -> dict[str, np.ndarray]:
    """One case's tensors before and after, and its settings as JSON."""
    format, weights, activations = CASES[name]
    args = QuantizationArgs(**{"num_bits": 8, **weights})
    rounding = None if activations is None else QuantizationArgs(**activations)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=rounding)
    rows = 32 if args.strategy == "block" else ROWS
    generator = torch.Generator().manual_seed(len(name))
    weight = torch.randn(rows, COLUMNS, generator=generator)
    shared = parts_of(weight, args)
    scale, zero = calculate_qparams(shared.amin(-1), shared.amax(-1), args)
    if args.type == "int" and format == PACKED:
        scale = scale.half().float()
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    compressor = BaseCompressor.get_value_from_registry(format)
    small = compressor.compress(state, scheme)
    if name == "int8_static":
        small |= {"input_scale": torch.tensor([0.05]), "input_zero_point": torch.tensor([4])}
        small["input_zero_point"] = small["input_zero_point"].to(torch.int8)
    meant = compressor.decompress(small, scheme)["weight"]
    group = json.loads(scheme.model_dump_json())
    found = {f"{name}.meant": meant.float().numpy()}
    for ending, tensor in small.items():
        raw = tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
        found[f"{name}.tensor.{ending}"] = raw.contiguous().numpy()
    settings = {"format": format, "config_groups": {"group_0": group}}
    found[f"{name}.settings"] = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    return found


def parts_of(weight: torch.Tensor, args: QuantizationArgs) -> torch.Tensor:
    """The weight as [rows, columns, elements that share a scale] of its scales."""
    if args.strategy == "group":
        return weight.reshape(len(weight), -1, args.group_size)
    if args.strategy == "block":
        rows, columns = args.block_structure
        blocks = weight.reshape(len(weight) // rows, rows, COLUMNS // columns, columns)
        return blocks.permute(0, 2, 1, 3).flatten(2)
    return weight.reshape((1, 1, -1) if args.strategy == "tensor" else (len(weight), 1, COLUMNS))


if __name__ == "__main__":
    arrays: dict[str, np.ndarray] = {}
    for case in CASES:
        arrays |= record(case)
    np.savez_compressed(Path(__file__).with_name("compressed_tensors.npz"), **arrays)
