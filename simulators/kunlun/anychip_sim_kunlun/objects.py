"""Object files, compiled once: an entry is used again while its source and headers are the same.

An entry is a folder named after source, flags and compiler. `headers.json` in it says which
headers were read and what was in them; `DIGEST.o` beside it belongs to that list. Entries that
no build has used for a month are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from anychip_sim_kunlun.compiler import FLAGS, Compiler, run

KEPT_S = 30 * 24 * 3600.0
LIST = "headers.json"
INCLUDE_FOLDERS = (
    "include",
    *(f"include/{n}" for n in ("xhpc", "xhpc/xblas", "xhpc/xfa", "xft")),
    ".",
)
"""As a user of the split form of the vendor's headers has them, and our own sources."""


class ObjectCache:
    """Compiles sources below `root` into `folder`. Safe between threads and processes."""

    def __init__(self, folder: Path, root: Path, compiler: Compiler) -> None:
        self._folder, self._root, self._compiler = folder, root, compiler
        # A header is read once a build: one build sees one state of it.
        self._digest = lru_cache(maxsize=None)(digest_of)

    def object_of(self, source: Path, defines: Sequence[str] = ()) -> Path:
        """The object file of a source, from the cache or compiled now. Raises BuildRefused."""
        flags = (*FLAGS, *(f"-D{define}" for define in defines))
        name = str(source.relative_to(self._root))
        parts = (name, digest_of(source), *flags, self._compiler.identity)
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
        entry = self._folder / key
        entry.mkdir(parents=True, exist_ok=True)
        return self._found(entry) or self._compiled(entry, source, flags)

    def _found(self, entry: Path) -> Path | None:
        listing = entry / LIST
        if not listing.exists():
            return None
        headers: dict[str, str] = json.loads(listing.read_text())
        same = all(self._header(name) == digest for name, digest in headers.items())
        kept = entry / _object_name(headers)
        if not same or not kept.exists():
            return None
        os.utime(entry)  # in use: not to be removed
        return kept

    def _header(self, name: str) -> str:
        path = self._root / name
        return self._digest(path) if path.exists() else ""

    def _compiled(self, entry: Path, source: Path, flags: Sequence[str]) -> Path:
        with tempfile.TemporaryDirectory(prefix="compiling-", dir=entry) as folder:
            made, listed = Path(folder) / "made.o", Path(folder) / "made.d"
            include = [f"-I{self._root / folder}" for folder in INCLUDE_FOLDERS]
            include += ["-iquote", str(self._root / "runtime")]  # device.h, for every library
            paths = ["-MMD", "-MF", str(listed), f"-ffile-prefix-map={self._root}=native"]
            run([self._compiler.path, *flags, *include, *paths, "-c", str(source), "-o", str(made)])
            headers = {n: self._digest(self._root / n) for n in self._headers(listed, source)}
            kept = entry / _object_name(headers)
            made.replace(kept)
            fresh = Path(folder) / LIST
            fresh.write_text(json.dumps(headers))
            fresh.replace(entry / LIST)
        return kept

    def _headers(self, listed: Path, source: Path) -> list[str]:
        """Headers below the root, from the rule for make that the compiler wrote."""
        text = listed.read_text().replace("\\\n", " ").partition(":")[2]
        words = text.replace("\\ ", "\0").split()
        paths = {Path(os.path.normpath(word.replace("\0", " "))) for word in words}
        ours = {path for path in paths if path.is_relative_to(self._root)} - {source}
        return sorted(str(path.relative_to(self._root)) for path in ours)

    def forget_unused(self) -> None:
        """Remove entries that no build has used for a month."""
        oldest = time.time() - KEPT_S
        for entry in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another build may remove it at the same time
                if entry.is_dir() and entry.stat().st_mtime < oldest:
                    shutil.rmtree(entry)


def digest_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _object_name(headers: dict[str, str]) -> str:
    text = json.dumps(headers, sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.o"
