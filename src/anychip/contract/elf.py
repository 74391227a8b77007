"""What a shared library says of itself, read from its file without loading it."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_LOADED, _DYNAMIC = 1, 2
"""Kinds of program headers: a segment in memory, the dynamic section."""

_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
"""Tags of the dynamic section."""


class NoSharedLibrary(ValueError):
    """The file is no ELF library of 64 bits, low byte first; the text says what it is."""


@dataclass(frozen=True)
class Dynamic:
    """soname: what others know it by. needed: libraries by their sonames. run_path: folders that
    it is looked for in first, `$ORIGIN` filled in."""

    soname: str
    needed: tuple[str, ...]
    run_path: tuple[Path, ...]


def dynamic(path: Path) -> Dynamic:
    """The dynamic section of a library. Raises OSError, NoSharedLibrary."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise NoSharedLibrary(f"{path} is no shared library: it has no ELF header")
        if head[4:6] != b"\x02\x01":
            raise NoSharedLibrary(f"{path} is no ELF file of 64 bits, low byte first")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(data, path)
            except (struct.error, ValueError) as error:
                raise NoSharedLibrary(f"{path} is cut short or damaged: {error}") from error


def _read(data: mmap.mmap, path: Path) -> Dynamic:
    segments = _segments(data)
    section = next((s for s in segments if s[0] == _DYNAMIC), None)
    if section is None:
        raise NoSharedLibrary(f"{path} is no shared library: it has no dynamic section")
    entries = _entries(data, section[1], section[3])
    loaded = [s for s in segments if s[0] == _LOADED]
    strings = _offset(loaded, dict(entries)[_STRINGS]) if _STRINGS in dict(entries) else 0

    def texts(tag: int) -> tuple[str, ...]:
        return tuple(_text(data, strings + value) for found, value in entries if found == tag)

    folders = ":".join((*texts(_RUNPATH), *texts(_RPATH))).split(":")
    here = str(path.resolve().parent)
    filled = (f.replace("$ORIGIN", here).replace("${ORIGIN}", here) for f in folders if f)
    return Dynamic(next(iter(texts(_SONAME)), ""), texts(_NEEDED), tuple(map(Path, filled)))


def _segments(data: mmap.mmap) -> list[tuple[int, int, int, int]]:
    """Kind, offset in the file, address, bytes in the file of each program header."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, start + number * size
        )
        found.append((kind, offset, address, length))
    return found


def _entries(data: mmap.mmap, offset: int, length: int) -> list[tuple[int, int]]:
    """Tag and value, up to the null entry."""
    found = []
    for place in range(offset, offset + length, 16):
        tag, value = struct.unpack_from("<qQ", data, place)
        if tag == 0:
            break
        found.append((tag, value))
    return found


def _offset(loaded: list[tuple[int, int, int, int]], address: int) -> int:
    """Where in the file an address is. Raises ValueError."""
    for _, offset, start, length in loaded:
        if start <= address < start + length:
            return offset + address - start
    raise ValueError(f"address {address:#x} is in no segment")


def _text(data: mmap.mmap, offset: int) -> str:
    end = data.find(b"\0", offset)
    if end < 0:
        raise ValueError("a name without an end")
    return data[offset:end].decode(errors="backslashreplace")
