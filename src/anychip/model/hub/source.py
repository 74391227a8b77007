"""What a hub's client is asked for, whichever hub it is."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anychip.model.hub.errors import HubError
from anychip.model.hub.messages import Wanted

_PARTIAL = re.compile(r"(\.[0-9a-f]+)?\.(incomplete|parallel_tmp)|_\d+_\d+")
"""How both clients call what is half fetched, after the name that it will have."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that the hub has. size: bytes. blob: its name in the cache, where that is another."""

    size: int
    blob: str | None = None


Listing = Mapping[str, RemoteFile]
"""Path in the repository -> file."""


class Source(Protocol):
    """One model on a hub. Every method raises HubError."""

    title: str
    """The hub's name for users."""

    def listing(self) -> Listing:
        """What the hub has; Unreachable where it cannot be asked."""

    def cached(self) -> Path | None:
        """The folder of what was fetched before, whole or not; asks nobody."""

    def fetch(self, files: Sequence[str]) -> Path:
        """Bring these files, unless they are here; the folder that holds them."""

    def blobs(self, folder: Path) -> Path:
        """Where the bytes of a `RemoteFile.blob` arrive."""


class ModelOnHub:
    """What is wanted, as both clients take it: the beginning of every source."""

    def __init__(self, wanted: Wanted) -> None:
        self._id, self._revision = wanted.id, wanted.revision
        self._cache = wanted.cache_dir
        self._name = f"{wanted.id}@{wanted.revision}" if wanted.revision else wanted.id


def said(error: Exception) -> str:
    """A client's error, on one line."""
    first = (str(error).strip().splitlines() or ["no reason given"])[0]
    return f"{type(error).__name__}: {first[:300]}"


def present(source: Source, folder: Path, name: str, file: RemoteFile) -> int:
    """Bytes of a file that are here, whole or in part."""
    target = folder / name
    if target.exists():
        return file.size
    stem = target if file.blob is None else source.blobs(folder) / file.blob
    found = 0
    for path in stem.parent.glob(f"{_literal(stem.name)}*"):
        rest = path.name.removeprefix(stem.name)
        if not rest or _PARTIAL.fullmatch(rest):
            found += _size(path)
    return min(found, file.size)


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _size(path: Path) -> int:
    """Bytes; none for a file that was renamed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def disk_error(error: Exception, folder: str) -> HubError | None:
    """The error of a disk that takes no more; None for any other."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOSPC:
        text = "the disk is full; free some space"
    elif number in (errno.EACCES, errno.EROFS, errno.EPERM):
        text = "nothing may be written there"
    else:
        return None
    return HubError(f"{folder}: {text}, or name another folder with --download-dir")
