"""Records what AutoGPTQ and AutoAWQ read out of random words: gptq_awq.npz.

Run where torch and transformers are installed, with the unpacked packages (auto-gptq 0.7.1,
autoawq 0.2.9): `python tests/model/record_gptq_awq.py FOLDER_OF_AUTO_GPTQ FOLDER_OF_AUTOAWQ`. One
file of each is run by itself, as neither package can be imported whole without its kernels. Stored
zero points of all ones are left out: AutoGPTQ's own classes read them in two ways.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROWS, COLUMNS, GROUP = 32, 64, 32
GPTQ = {"gptq4": (4, False), "gptq4_act_order": (4, True), "gptq8": (8, False)}


def module(path: Path) -> Any:
    """A file as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def words(rng: np.random.Generator, rows: int, columns: int, bits: int, most: int) -> torch.Tensor:
    """int32 of random numbers 0 to most."""
    numbers = rng.integers(0, most + 1, (rows, columns, 32 // bits)).astype(np.uint32)
    shifted = numbers << (np.arange(0, 32, bits, dtype=np.uint32))
    return torch.from_numpy(np.bitwise_or.reduce(shifted, 2).view(np.int32))


def scales(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.uniform(0.01, 0.1, (COLUMNS // GROUP, ROWS))).half().float()


def gptq(folder: Path, bits: int, ordered: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The package's linear on the identity."""
    rng = np.random.default_rng(bits)
    path = folder / "auto_gptq" / "nn_modules" / "qlinear" / "qlinear_cuda.py"
    linear = module(path).QuantLinear(bits, GROUP, COLUMNS, ROWS, False)
    pack, index = 32 // bits, np.arange(COLUMNS) // GROUP
    if ordered:
        rng.shuffle(index)
    linear.qweight = words(rng, COLUMNS // pack, ROWS, bits, 2**bits - 1)
    linear.qzeros = words(rng, COLUMNS // GROUP, ROWS // pack, bits, 2**bits - 2)
    linear.scales = scales(rng)
    linear.g_idx = torch.from_numpy(index.astype(np.int32))
    names = ("qweight", "qzeros", "scales", "g_idx")
    return {n: getattr(linear, n) for n in names}, linear(torch.eye(COLUMNS)).T


def awq(folder: Path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The package's dequantizer."""
    rng = np.random.default_rng(1)
    tensors = {
        "qweight": words(rng, COLUMNS, ROWS // 8, 4, 15),
        "qzeros": words(rng, COLUMNS // GROUP, ROWS // 8, 4, 15),
        "scales": scales(rng),
    }
    read = module(folder / "awq" / "utils" / "packing_utils.py").dequantize_gemm
    meant = read(tensors["qweight"], tensors["qzeros"], tensors["scales"], 4, GROUP)
    return tensors, meant.T


if __name__ == "__main__":
    of_gptq, of_awq = map(Path, sys.argv[1:3])
    cases = {name: gptq(of_gptq, *case) for name, case in GPTQ.items()} | {"awq": awq(of_awq)}
    arrays = {}
    for name, (tensors, meant) in cases.items():
        arrays[f"{name}.meant"] = meant.detach().contiguous().numpy()
        arrays |= {f"{name}.tensor.{n}": t.numpy() for n, t in tensors.items()}
    np.savez_compressed(Path(__file__).with_name("gptq_awq.npz"), **arrays)
