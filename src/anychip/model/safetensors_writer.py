"""Writes safetensors files: for tiny models that are made on the spot.

Format: the safetensors README. What is written here, `safetensors_file.py` reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from anychip.contract.dtype import DType
from anychip.contract.weights import HostWeight

_DTYPES = {
    DType.FLOAT32.value: "F32",
    DType.FLOAT16.value: "F16",
    DType.BFLOAT16.value: "BF16",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}


def write_safetensors(path: Path, tensors: Mapping[str, HostWeight]) -> None:
    """Write a file whole: a reader meets the old one or the new one, never a part.

    Raises ValueError for a format that is no dtype of the file's; OSError.
    """
    rows, offset = {}, 0
    for name, weight in tensors.items():
        if weight.format not in _DTYPES:
            raise ValueError(f"{name}: safetensors has no dtype for {weight.format}")
        end = offset + weight.data.nbytes
        rows[name] = {
            "dtype": _DTYPES[weight.format],
            "shape": list(weight.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    head = json.dumps(rows, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # tensors begin at a multiple of 8
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for weight in tensors.values():
            file.write(weight.data)
    partial.replace(path)
