"""Writes GGUF files of version 3, little-endian: for tiny models that are made on the spot.

Format: ggml's docs/gguf.md. What is written here, `gguf.py` reads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from anychip.contract.weights import HostWeight
from anychip.model.gguf import DEFAULT_ALIGNMENT, KINDS, MAGIC, VERSIONS

Scalar = str | bool | int | float
Setting = Scalar | Sequence[Scalar]
"""A value of the metadata; a sequence holds elements of one kind."""

_STRING, _ARRAY = 8, 9
_NUMBERS = {bool: (7, "<?"), int: (5, "<i"), float: (6, "<f")}
"""Python type -> value type and how it is packed: bool, int32, float32."""
_UNSIGNED = 4, "<I"


def write_gguf(
    path: Path, settings: Mapping[str, Setting], tensors: Mapping[str, HostWeight]
) -> None:
    """Write a file whole: a reader meets the old one or the new one, never a part.

    An integer is written as uint32, one below 0 and those of a list as int32: llama.cpp insists on
    uint32 for sizes. Raises ValueError for an integer beyond that, an empty list that is no list of
    texts, a weight format that the file has no number for; OSError.
    """
    head = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(settings))]
    head += [_text(key) + _setting(key, value) for key, value in settings.items()]
    offset = 0
    for name, weight in tensors.items():
        head.append(_tensor(name, weight, offset))
        offset += _padded(weight.data.nbytes)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    sections: list[bytes | memoryview] = [b"".join(head), *(w.data for w in tensors.values())]
    with partial.open("wb") as file:
        for raw in sections:
            written = file.write(raw)
            file.write(bytes(_padded(written) - written))
    partial.replace(path)


def _padded(nbytes: int) -> int:
    return -(-nbytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _setting(key: str, value: Setting) -> bytes:
    """Value type and value."""
    try:
        if isinstance(value, (str, bool, int, float)):
            kind, raw = _count(value) if type(value) is int and value >= 0 else _scalar(value)
            return struct.pack("<I", kind) + raw
        kinds, raws = zip(*map(_scalar, value), strict=True) if value else ((_STRING,), ())
    except struct.error as error:
        raise ValueError(f"'{key}': {value!r:.60} does not fit 32 bits") from error
    if len(set(kinds)) > 1:
        raise ValueError(f"'{key}': {value!r:.60} mixes kinds of elements")
    return struct.pack("<IIQ", _ARRAY, kinds[0], len(value)) + b"".join(raws)


def _count(value: int) -> tuple[int, bytes]:
    kind, packing = _UNSIGNED
    return kind, struct.pack(packing, value)


def _scalar(value: Scalar) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _STRING, _text(value)
    kind, packing = _NUMBERS[type(value)]
    return kind, struct.pack(packing, value)


def _tensor(name: str, weight: HostWeight, offset: int) -> bytes:
    """One row of the tensor table; dimensions go from the innermost out."""
    if weight.format not in KINDS:
        raise ValueError(f"tensor '{name}': {weight.format} cannot be written to GGUF")
    count = len(weight.shape)
    shape = struct.pack(f"<I{count}Q", count, *weight.shape[::-1])
    return _text(name) + shape + struct.pack("<IQ", KINDS[weight.format], offset)
