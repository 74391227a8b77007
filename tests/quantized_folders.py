"""Tiny folders in each quantization scheme, written from the schemes' definitions with plain loops.

An encoder makes the tensors of one linear and, from the whole numbers before they are packed, the
values that they mean. Nothing here is shared with the readers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import tiny_models as tiny

Tensors = dict[str, torch.Tensor]
Encoded = tuple[Tensors, np.ndarray]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class Scheme:
    """encode: weight float32 [N, K] and its name to tensors by ending, and float32 values.

    told: what the start-up table calls its linears.
    """

    config: dict[str, Any]
    encode: Callable[[np.ndarray, str], Encoded]
    told: str


def pack_rows(numbers: np.ndarray, bits: int) -> torch.Tensor:
    """Unsigned [rows, n] -> int32 [rows, n * bits / 32], the first number in the lowest bits."""
    pack = 32 // bits
    padded = np.zeros((numbers.shape[0], -(-numbers.shape[1] // pack) * pack), np.uint32)
    padded[:, : numbers.shape[1]] = numbers
    words = np.zeros((numbers.shape[0], padded.shape[1] // pack), np.uint32)
    for place in range(pack):
        words |= padded[:, place::pack] << np.uint32(bits * place)
    return torch.from_numpy(words.view(np.int32).copy())


@dataclass(frozen=True)
class Counted:
    """Whole numbers of a weight in groups, and what they mean."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    values: np.ndarray


def count(
    weight: np.ndarray, bits: int, index: np.ndarray, *, symmetric: bool, dtype: type = np.float16
) -> Counted:
    """Codes 0 to 2 ** bits - 1, scales and zero points [N, groups]; x = scale * (code - zero)."""
    rows, groups, most = len(weight), int(index.max()) + 1, 2**bits - 1
    scales = np.zeros((rows, groups), np.float32)
    zeros = np.full((rows, groups), 2 ** (bits - 1))
    for group in range(groups):
        part = weight[:, index == group]
        if symmetric:
            scales[:, group] = np.abs(part).max(1) / (most / 2)
        else:
            low = np.minimum(part.min(1), 0)
            scales[:, group] = (np.maximum(part.max(1), 0) - low) / most
    scales = torch.from_numpy(scales).to(_TORCH[dtype]).float().numpy()
    if not symmetric:
        lows = [weight[:, index == g].min(1) for g in range(groups)]
        zeros = np.clip(np.round(-np.minimum(np.stack(lows, 1), 0) / scales), 0, most).astype(int)
    codes = np.clip(np.round(weight / scales[:, index]) + zeros[:, index], 0, most).astype(int)
    values = scales[:, index] * (codes - zeros[:, index]).astype(np.float32)
    return Counted(codes, scales, zeros, values)


_TORCH = {np.float16: torch.float16, np.float32: torch.float32, "bfloat16": torch.bfloat16}


def in_order(columns: int, group: int) -> np.ndarray:
    return np.arange(columns) // (columns if group == -1 else group)


def act_order(columns: int, group: int, name: str, *, per_linear: bool = False) -> np.ndarray:
    """Any order of groups; the same for all linears that see one input, unless per_linear."""
    key = name if per_linear else name.rsplit(".", 1)[0] + str(columns)
    shuffled = in_order(columns, group)
    np.random.default_rng(list(key.encode())).shuffle(shuffled)
    return shuffled


def gptq(bits: int, group: int, *, version: int = 1, symmetric=True, order: str = "") -> Scheme:
    """order: "", "act" (desc_act) or "own" (each linear has another)."""

    def encode(weight: np.ndarray, name: str) -> Encoded:
        columns = weight.shape[1]
        index = in_order(columns, group)
        if order:
            index = act_order(columns, group, name, per_linear=order == "own")
        counted = count(weight, bits, index, symmetric=symmetric)
        stored = counted.zeros - 1 if version == 1 else counted.zeros
        tensors = {
            "qweight": pack_rows(counted.codes, bits).T.contiguous(),
            "qzeros": pack_rows((stored.T % 2**bits).astype(np.uint32), bits),
            "scales": torch.from_numpy(counted.scales.T.copy()).half(),
            "g_idx": torch.from_numpy(index.astype(np.int32)),
        }
        return tensors, counted.values

    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": bool(order),
        "sym": symmetric,
        "damp_percent": 0.01,
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
    }
    told = f"u{bits}g{64 if group == -1 else group}{'o' if order else ''}"
    return Scheme(config, encode, told)


def awq(group: int) -> Scheme:
    def encode(weight: np.ndarray, name: str) -> Encoded:
        counted = count(weight, 4, in_order(weight.shape[1], group), symmetric=False)

        def packed(numbers: np.ndarray) -> torch.Tensor:
            """[rows, N] in words of eight, column AWQ_ORDER[i] in place i."""
            eights = numbers.reshape(len(numbers), -1, 8)[:, :, AWQ_ORDER]
            return pack_rows(eights.reshape(len(numbers), -1), 4)

        tensors = {
            "qweight": packed(counted.codes.T),
            "qzeros": packed(counted.zeros.T),
            "scales": torch.from_numpy(counted.scales.T.copy()).half(),
        }
        return tensors, counted.values

    config = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": None,
    }
    return Scheme(config, encode, f"u4g{group}")


def compressed(
    format: str, weights: dict[str, Any], activations: dict[str, Any] | None = None
) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": activations,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        "version": "0.12.0",
    }


def weight_args(bits: int, strategy: str, *, kind: str = "int", symmetric=True, **more) -> dict:
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": symmetric,
        "strategy": strategy,
        "dynamic": False,
        "group_size": None,
        "block_structure": None,
        "observer": "minmax",
        **more,
    }


def packed(bits: int, group: int, *, symmetric=True, ordered=False, dtype: Any = np.float16):
    """pack-quantized: weight-only, in groups or per channel."""

    def encode(weight: np.ndarray, name: str) -> Encoded:
        rows, columns = weight.shape
        index = act_order(columns, group, name) if ordered else in_order(columns, group)
        counted = count(weight, bits, index, symmetric=symmetric, dtype=dtype)
        tensors = {
            "weight_packed": pack_rows(counted.codes, bits),
            "weight_scale": torch.from_numpy(counted.scales).to(_TORCH[dtype]),
            "weight_shape": torch.tensor([rows, columns]),
        }
        if not symmetric:
            tensors["weight_zero_point"] = pack_rows(counted.zeros.T, bits).T.contiguous()
        if ordered:
            tensors["weight_g_idx"] = torch.from_numpy(index.astype(np.int32))
        return tensors, counted.values

    strategy, size = ("channel", None) if group == -1 else ("group", group)
    args = weight_args(
        bits,
        strategy,
        symmetric=symmetric,
        group_size=size,
        actorder="group" if ordered else None,
    )
    told = f"u{bits}g{64 if group == -1 else group}{'o' if ordered else ''}"
    return Scheme(compressed("pack-quantized", args), encode, told)


def int8(*, static=False, strategy: str = "channel", activations: bool = True) -> Scheme:
    """int-quantized: W8A8, or int8 weights alone."""

    def encode(weight: np.ndarray, name: str) -> Encoded:
        axis = 1 if strategy == "channel" else None
        scales = np.abs(weight).max(axis, keepdims=True) / np.float32(127)
        if not activations:
            scales = scales.astype(np.float16).astype(np.float32)
        counts = np.clip(np.round(weight / scales), -128, 127).astype(np.int8)
        tensors = {
            "weight": torch.from_numpy(counts),
            "weight_scale": torch.from_numpy(scales.reshape(-1, 1) if axis else scales.reshape(1)),
        }
        if static:
            tensors["input_scale"] = torch.tensor([0.0625])
            tensors["input_zero_point"] = torch.tensor([3], dtype=torch.int8)
        return tensors, counts.astype(np.float32) * scales

    rounding = {
        "num_bits": 8,
        "type": "int",
        "symmetric": not static,
        "strategy": "tensor" if static else "token",
        "dynamic": not static,
    }
    args = weight_args(8, strategy)
    config = compressed("int-quantized", args, rounding if activations else None)
    return Scheme(config, encode, "w8a8_static" if static else "w8a8" if activations else "u8g64")


def float8(block: int | None = None, strategy: str = "channel", *, own: bool = True) -> Scheme:
    """own: `quant_method: fp8`; else compressed-tensors' float-quantized."""

    def encode(weight: np.ndarray, name: str) -> Encoded:
        size = {"tensor": weight.shape, "channel": (1, weight.shape[1])}.get(strategy)
        rows, columns = (block, block) if block else size
        counts = (-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
        scales, spread = np.zeros(counts, np.float32), np.zeros_like(weight)
        for i in range(counts[0]):
            for j in range(counts[1]):
                part = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
                spread[part] = scales[i, j] = np.abs(weight[part]).max() / 448
        stored = torch.from_numpy(weight / spread).to(torch.float8_e4m3fn)
        ending = "weight_scale_inv" if own and block else "weight_scale"
        shaped = scales.reshape(1) if scales.size == 1 and not block else scales
        tensors = {"weight": stored, ending: torch.from_numpy(shaped)}
        return tensors, stored.float().numpy() * spread

    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    if block:
        config["weight_block_size"] = [block, block]
    if not own:
        structure = [block, block] if block else None
        args = weight_args(
            8, "block" if block else strategy, kind="float", block_structure=structure
        )
        rounding = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
        config = compressed("float-quantized", args, {"symmetric": True, **rounding})
    per = f"in {block}x{block} blocks" if block else f"per {strategy}"
    return Scheme(config, encode, f"fp8 {per}")


SCHEMES = {
    "gptq4": gptq(4, 32),
    "gptq4_act_order": gptq(4, 32, order="act"),
    "gptq4_asymmetric": gptq(4, 64, symmetric=False),
    "gptq4_v2": gptq(4, 32, version=2, symmetric=False),
    "gptq4_channel": gptq(4, -1),
    "gptq8": gptq(8, 32),
    "gptq8_v2_act_order": gptq(8, 32, version=2, symmetric=False, order="act"),
    "gptq4_own_orders": gptq(4, 32, order="own"),
    "awq": awq(32),
    "packed4": packed(4, 32),
    "packed4_asymmetric": packed(4, 64, symmetric=False),
    "packed4_ordered": packed(4, 32, ordered=True),
    "packed4_bfloat16": packed(4, 64, dtype="bfloat16"),
    "packed4_float32": packed(4, 32, dtype=np.float32),
    "packed4_groups_of_16": packed(4, 16),
    "packed8_channel": packed(8, -1),
    "int8": int8(),
    "int8_tensor": int8(strategy="tensor"),
    "int8_static": int8(static=True),
    "int8_weights": int8(activations=False),
    "fp8_block": float8(48),
    "fp8_tensor": float8(strategy="tensor"),
    "fp8_channel": float8(own=False),
    "fp8_compressed_block": float8(32, own=False),
}


def linears(tensors: Tensors) -> list[str]:
    return [n.removesuffix(".weight") for n in tensors if n.endswith("_proj.weight")]


def write_pair(folder: Path, scheme: Scheme, **model_options: Any) -> tuple[Path, Path]:
    """The quantized folder, and a plain float32 folder of the values that it means."""
    plain = tiny.make_hf_folder(folder / "plain", **model_options)
    return quantize_folder(plain, folder / "quantized", scheme), plain


def quantize_folder(plain: Path, quantized: Path, scheme: Scheme) -> Path:
    """Copy a folder of one file with its projections quantized; `plain` gets what they mean."""
    shutil.copytree(plain, quantized)
    tensors = load_file(plain / "model.safetensors")
    meant = {n: t.float().contiguous() for n, t in tensors.items()}
    small = dict(tensors)
    for name in linears(tensors):
        weight = tensors[f"{name}.weight"].float().numpy()
        parts, values = scheme.encode(weight, name)
        del small[f"{name}.weight"]
        small |= {f"{name}.{ending}": part.contiguous() for ending, part in parts.items()}
        meant[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    save_file(meant, plain / "model.safetensors", {"format": "pt"})
    save_file(small, quantized / "model.safetensors", {"format": "pt"})
    edit_config(quantized, lambda config: config.update(quantization_config=scheme.config))
    return quantized


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def edit_tensors(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, {"format": "pt"})
