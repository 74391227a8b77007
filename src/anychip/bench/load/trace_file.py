"""The file of a trace before anybody reads requests in it: what it cannot be is refused by name."""

from __future__ import annotations

import codecs
import stat
from pathlib import Path

from .calls import LoadError

_MOST_HEAD = 1 << 20

_PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip --keep"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\xfd7zXZ\x00": ("xz", "unxz --keep"),
    b"BZh": ("bzip2", "bunzip2 --keep"),
    b"PK\x03\x04": ("zip", "unzip"),
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class TraceError(LoadError):
    """The trace cannot be used as asked; the text says why."""


def first_line(path: Path) -> bytes:
    """The first line, without a mark and the end of line. Raises TraceError for what can be no
    trace, OSError for what cannot be read."""
    mode = path.stat().st_mode  # asked once: a record may be rotated meanwhile
    if stat.S_ISDIR(mode):
        raise TraceError(f"{path} is a folder: name the file in it")
    if not stat.S_ISREG(mode):
        raise TraceError(f"{path} is no plain file, and a trace is read more than once: save it")
    with path.open("rb") as file:
        head = file.readline(_MOST_HEAD)
    if not head:
        raise TraceError(f"{path} is empty: nothing was recorded, or the copy of it failed")
    for magic, (name, unpack) in _PACKED.items():
        if head.startswith(magic):
            raise TraceError(f"{path} is packed ({name}): unpack it first, {unpack} {path}")
    if head.startswith(_UTF16):
        raise TraceError(f"{path} is UTF-16: save it as UTF-8, iconv -f UTF-16 -t UTF-8 {path}")
    return head.removeprefix(codecs.BOM_UTF8).strip()
