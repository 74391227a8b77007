"""One safetensors file: an 8-byte length, a JSON header, then the bytes. Mapped, never copied.

Format: the safetensors README. Header length, offsets and sizes are checked before use.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeGuard

from anychip.contract.dtype import DType
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError
from anychip.model.mapped import MappedFile, TensorEntry, check_overlap, find_entry
from anychip.model.unfinished import fetch_again

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMENSIONS = 16
_FORMATS = {
    "F32": DType.FLOAT32.value,
    "F16": DType.FLOAT16.value,
    "BF16": DType.BFLOAT16.value,
}
_ITEMSIZE = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
}


class SafetensorsFile:
    """An open safetensors file: `tensors` by name, and their bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        header, start = _read_header(path, self._file.data)
        self.tensors: dict[str, TensorEntry] = {}
        for name, row in header.items():
            if name != "__metadata__":
                self.tensors[name] = self._entry(name, row, start)
        check_overlap(path, self.tensors.items())

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; refuses a missing one and an unsupported format."""
        return find_entry(self.tensors, name, self.path)

    def read(self, name: str) -> HostWeight:
        """A tensor's bytes, as a view of the mapped file."""
        return self._file.weight(self.entry(name))

    def view(self, name: str) -> memoryview:
        """A tensor's bytes, whether or not they can be a weight. KeyError where there is none."""
        return self._file.view(self.tensors[name])

    def same(self, other: SafetensorsFile, name: str) -> bool:
        """Whether both files have the same bytes under a name; reads them."""
        mine, theirs = self.tensors[name], other.tensors[name]
        if (mine.format, mine.shape, mine.nbytes) != (theirs.format, theirs.shape, theirs.nbytes):
            return False
        equal = self._file.equals(mine, other._file, theirs)
        self.give_back()
        other.give_back()
        return equal

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""
        self._file.give_back()

    def close(self) -> None:
        """Let go of the mapping; it is unmapped when the last view of it is gone."""
        self._file.close()
        self.tensors = {}

    def _entry(self, name: str, row: Any, start: int) -> TensorEntry:
        dtype, shape, offsets = self._fields(name, row)
        first, last = start + offsets[0], start + offsets[1]
        if not start <= first <= last <= len(self._file.data):
            raise self._error(
                name,
                f"lies at bytes {first} to {last}, the file ends at {len(self._file.data)}: "
                f"it is cut off or damaged; {fetch_again(self.path.parent)}",
            )
        itemsize = _ITEMSIZE.get(dtype)
        if itemsize and math.prod(shape) * itemsize != last - first:
            needed = math.prod(shape) * itemsize
            raise self._error(name, f"{dtype} {shape} needs {needed} bytes, has {last - first}")
        return TensorEntry(_FORMATS.get(dtype, dtype), shape, first, last - first)

    def _fields(self, name: str, row: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
        """Check the types of a header row."""
        fields: dict[str, Any] = row if isinstance(row, dict) else {}
        dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
        if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets)):
            raise self._error(name, "its header row lacks a sound dtype, shape or data_offsets")
        if len(offsets) != 2:
            raise self._error(name, f"data_offsets has {len(offsets)} numbers, 2 are needed")
        return dtype, tuple(shape), (offsets[0], offsets[1])

    def _error(self, name: str, message: str) -> CheckpointError:
        return CheckpointError(f"broken safetensors file: {message}", path=self.path, tensor=name)


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """A JSON object. Refuses duplicate keys, anything but an object, and nesting without end."""
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not valid JSON: {error}", path=path) from error
    if not isinstance(value, dict):
        raise CheckpointError("is not a JSON object", path=path)
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key '{key:.80}' appears twice")
        found[key] = value
    return found


def _read_header(path: Path, data: memoryview) -> tuple[dict[str, Any], int]:
    """The header and the offset at which the tensors begin."""
    size = int.from_bytes(data[:8], "little")
    room = min(len(data) - 8, MAX_HEADER_BYTES)
    if len(data) < 8 or not 2 <= size <= room:
        raise CheckpointError(
            f"not a safetensors file, or cut off: its header claims {size} bytes, "
            f"2 to {max(room, 0)} are possible; {fetch_again(path.parent)}",
            path=path,
        )
    return parse_json(bytes(data[8 : 8 + size]), path), 8 + size


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    """Whether it is a short list of sizes; short bounds the cost of their product."""
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        return False
    return all(type(v) is int and 0 <= v < 1 << 62 for v in values)
