"""GGUF versions 2 and 3, little-endian: bounded header, tensor data mapped and never copied.

Format: ggml's docs/gguf.md. Every count, length and offset is held against the bytes that are
left in the file before anything is allocated for it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from anychip.contract.dtype import DType
from anychip.contract.formats import format_bytes
from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.mapped import (
    SUPPORTED_FORMATS,
    MappedFile,
    Place,
    TensorEntry,
    check_overlap,
    find_entry,
)
from anychip.model.rows import rows_of
from anychip.model.unfinished import fetch_again

MAGIC = b"GGUF"
NEXT_LAYERS = "nextn_predict_layers"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 64 << 20  # a 256k vocabulary with its merges takes about 15 MiB
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_ARRAY = 1 << 22
MAX_NAME_BYTES = 1 << 16
MAX_DIMENSIONS = 4
MAX_EXTENT = 1 << 40
DEFAULT_ALIGNMENT = 32

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Type in the file -> letter of the struct module."""
_STRING, _ARRAY = 8, 9
KINDS = {
    DType.FLOAT32.value: 0,
    DType.FLOAT16.value: 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "q2_k": 10,
    "q3_k": 11,
    "q4_k": 12,
    "q5_k": 13,
    "q6_k": 14,
    "iq4_nl": 20,
    DType.BFLOAT16.value: 30,
    "mxfp4": 39,
}
"""Weight format -> the number that the file names it by."""
_OTHER_FORMATS = {
    9: "q8_1",
    15: "q8_K",
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    19: "iq1_s",
    21: "iq3_s",
    22: "iq2_s",
    23: "iq4_xs",
    24: "i8",
    25: "i16",
    26: "i32",
    27: "i64",
    28: "f64",
    29: "iq1_m",
    34: "tq1_0",
    35: "tq2_0",
    40: "nvfp4",
}
_FORMATS = {number: name for name, number in KINDS.items()} | _OTHER_FORMATS


class _Header:
    """A cursor over the header that never leaves it."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path = path
        self._data = data[:MAX_HEADER_BYTES]
        self._cut = len(data) > MAX_HEADER_BYTES
        self.position = 0

    def error(self, message: str) -> CheckpointError:
        return CheckpointError(f"broken GGUF: {message}; fetch it again", path=self.path)

    def take(self, count: int, what: str) -> memoryview:
        left = len(self._data) - self.position
        if count > left:
            limit = f"the header limit of {MAX_HEADER_BYTES}" if self._cut else "the file"
            raise self.error(
                f"{what} needs {count} bytes at byte {self.position}, {limit} leaves {left}"
            )
        self.position += count
        return self._data[self.position - count : self.position]

    def u32(self, what: str) -> int:
        return int(struct.unpack("<I", self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack("<Q", self.take(8, what))[0])

    def count(self, what: str, limit: int, smallest: int) -> int:
        """A count of things that take at least `smallest` bytes each."""
        value = self.u64(what)
        if value > limit:
            raise self.error(f"{what} is {value}, at most {limit} are accepted")
        if value * smallest > len(self._data) - self.position:
            raise self.error(f"{what} is {value}, more than the file can hold")
        return value

    def text(self, what: str, limit: int = MAX_HEADER_BYTES) -> str:
        size = self.u64(f"the length of {what}")
        if size > limit:
            raise self.error(f"{what} is {size} bytes long, at most {limit} are accepted")
        try:
            return str(self.take(size, what), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 ({error.reason})") from error

    def value(self, key: str) -> Any:
        kind = self.u32(f"the type of '{key}'")
        if kind == _ARRAY:
            return self._array(key)
        if kind == _STRING:
            return self.text(f"the value of '{key}'")
        return self._numbers(key, kind, 1)[0]

    def _array(self, key: str) -> list[Any]:
        kind = self.u32(f"the element type of '{key}'")
        smallest = 8 if kind == _STRING else 1
        count = self.count(f"the length of array '{key}'", MAX_ARRAY, smallest)
        if kind == _STRING:
            return self._texts(f"an element of '{key}'", count)
        if kind == _ARRAY:
            raise self.error(f"'{key}' is an array of arrays, which is not accepted")
        return self._numbers(key, kind, count)

    def _texts(self, what: str, count: int) -> list[str]:
        """A vocabulary has a hundred thousand of them: read without a name for each step."""
        data, at, size_of, found = self._data, self.position, struct.Struct("<Q").unpack_from, []
        for _ in range(count):
            end = at + 8 + size_of(data, at)[0] if at + 8 <= len(data) else len(data) + 1
            if end > len(data):
                break
            try:
                found.append(str(data[at + 8 : end], "utf-8"))
            except UnicodeDecodeError:
                break
            at = end
        self.position = at
        # What is wrong with the next one, where there is one, is told by the way that names it.
        return found + [self.text(what) for _ in range(count - len(found))]

    def _numbers(self, key: str, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise self.error(f"'{key}' has the unknown value type {kind}")
        row = struct.Struct(f"<{count}{_SCALARS[kind]}")
        return list(row.unpack(self.take(row.size, f"the value of '{key}'")))


def read_gguf_metadata(path: Path) -> dict[str, Any]:
    """The file's key/value pairs as plain python values (int, float, bool, str, list of those).

    Raises CheckpointError for a broken file, UnsupportedModel for version 1 and big-endian.
    """
    header = _Header(path, MappedFile(path).data)
    _tensor_count, metadata = _read_metadata(header)
    return metadata


class GgufFile:
    """An open GGUF file: `metadata`, `tensors` by name, and their bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        header = _Header(path, self._file.data)
        tensor_count, self.metadata = _read_metadata(header)
        _refuse_split(path, self.metadata)
        self.tensors: dict[str, TensorEntry] = {}
        for _ in range(tensor_count):
            self._add(header)
        self._place(header.position)

    @property
    def further_layers(self) -> bool:
        """Whether the file tells of layers that predict further tokens."""
        return bool(self.metadata.get(f"{self.metadata.get('general.architecture')}.{NEXT_LAYERS}"))

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; refuses a missing one and an unsupported format."""
        return find_entry(self.tensors, name, self.path)

    def read(self, name: str) -> HostWeight:
        """A tensor's bytes, as a view of the mapped file."""
        return self._file.weight(self.entry(name))

    def rows(self, name: str, first: int, count: int) -> HostWeight:
        """Some rows of a tensor, all but its last dimension counted as rows."""
        return rows_of(self.read(name), first, count)

    def place(self, name: str) -> Place:
        """Where a tensor lies."""
        return (self.path.name, self.entry(name).offset)

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""
        self._file.give_back()

    def close(self) -> None:
        """Let go of the mapping; it is unmapped when the last view of it is gone."""
        self._file.close()
        self.tensors = {}

    def _add(self, header: _Header) -> None:
        name, entry = _read_tensor_info(header)
        if name in self.tensors:
            raise CheckpointError("broken GGUF: named twice", path=self.path, tensor=name)
        self.tensors[name] = entry

    def _place(self, header_end: int) -> None:
        """Turn offsets into file offsets and hold them against the file's size."""
        alignment = _alignment(self.path, self.metadata)
        start = -(-header_end // alignment) * alignment
        for name, entry in self.tensors.items():
            offset = start + entry.offset
            problem = None
            if entry.offset % alignment:
                problem = f"offset {entry.offset} is not a multiple of {alignment}"
            elif offset + entry.nbytes > len(self._file.data):
                problem = (
                    f"ends at byte {offset + entry.nbytes}, the file at {len(self._file.data)}: "
                    f"it is cut off or damaged; {fetch_again(self.path.parent)}"
                )
            if problem:
                raise CheckpointError(f"broken GGUF: {problem}", path=self.path, tensor=name)
            self.tensors[name] = TensorEntry(entry.format, entry.shape, offset, entry.nbytes)
        check_overlap(self.path, self.tensors.items())


def _read_metadata(header: _Header) -> tuple[int, dict[str, Any]]:
    """Read up to the tensor table. Returns how many tensors it has, and the key/value pairs."""
    if bytes(header.take(4, "the magic")) != MAGIC:
        raise CheckpointError("not a GGUF file (it does not begin with 'GGUF')", path=header.path)
    _check_version(header)
    tensor_count = header.count("the tensor count", MAX_TENSORS, 24)
    key_count = header.count("the key count", MAX_KEYS, 13)
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = header.text("a key", MAX_NAME_BYTES)
        if key in metadata:
            raise header.error(f"key '{key}' appears twice")
        metadata[key] = header.value(key)
    return tensor_count, metadata


def _check_version(header: _Header) -> None:
    version = header.u32("the version")
    if version in VERSIONS:
        return
    if version and not version & 0xFFFF:
        raise UnsupportedModel("big-endian GGUF is not supported", path=header.path)
    raise unsupported("GGUF version", version, map(str, VERSIONS), header.path)


def _refuse_split(path: Path, metadata: dict[str, Any]) -> None:
    parts = metadata.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModel(
            f"is one of {parts} parts of a split GGUF, which is not supported; "
            "merge them first (llama-gguf-split --merge)",
            path=path,
        )


def _alignment(path: Path, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    sound = isinstance(alignment, int) and 8 <= alignment <= 1 << 20
    if not sound or alignment & (alignment - 1):
        raise CheckpointError(
            f"broken GGUF: general.alignment is {alignment!r}, a power of two from 8 is needed",
            path=path,
        )
    return int(alignment)


def _read_tensor_info(header: _Header) -> tuple[str, TensorEntry]:
    """One row of the tensor table; its offset is still relative to the data section."""
    name = header.text("a tensor name", MAX_NAME_BYTES)
    dimensions = header.u32(f"the dimensions of '{name}'")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise header.error(f"tensor '{name}' has {dimensions} dimensions, 1 to 4 are accepted")
    shape = tuple(header.u64(f"the shape of '{name}'") for _ in range(dimensions))[::-1]
    if not all(0 < extent <= MAX_EXTENT for extent in shape):
        raise header.error(f"tensor '{name}' has the impossible shape {shape}")
    kind = header.u32(f"the type of '{name}'")
    offset = header.u64(f"the offset of '{name}'")
    format = _FORMATS.get(kind, f"ggml type {kind}")
    if format not in SUPPORTED_FORMATS:
        return name, TensorEntry(format, shape, offset, 0)
    try:
        return name, TensorEntry(format, shape, offset, format_bytes(format, shape))
    except ValueError as error:
        raise header.error(f"tensor '{name}': {error}") from error
