"""Which headers of an SDK some sources include: so that a missing one is told by its name, and a
changed one compiles again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.loader import in_folders

_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def included(file: Path) -> tuple[str, ...]:
    """Names in the include lines of a file, conditions not looked at."""
    return tuple(name for name, _ in _lines(file))


def _lines(file: Path) -> Iterator[tuple[str, bool]]:
    """Each name, and whether it is in quotes."""
    text = file.read_text(encoding="utf-8", errors="replace")
    for quoted, angled in _INCLUDE.findall(text):
        yield quoted or angled, bool(quoted)


def wanted(sources: Sequence[Path], own: Sequence[Path] = ()) -> dict[str, tuple[Path, ...]]:
    """Headers that an SDK must have -> who includes each: a source, or a header beside it.

    Those in a folder, as sdk/runtime.h, or in quotes, that lie neither beside the sources nor in
    the folders `own`.
    """
    found: dict[str, tuple[Path, ...]] = {}
    for name, quoted, file in _outside(sources):
        there = in_folders(name, own) is not None
        if not there and (quoted or ("/" in name and not name.startswith("sys/"))):
            found[name] = (*found.get(name, ()), file)
    return dict(sorted(found.items()))


def outside(sources: Sequence[Path]) -> frozenset[str]:
    """Every name that sources include from elsewhere, the compiler's own headers as well."""
    return frozenset(name for name, _, _ in _outside(sources))


def _outside(sources: Sequence[Path]) -> Iterator[tuple[str, bool, Path]]:
    """Name, whether in quotes, and who includes it, where it does not lie beside that."""
    waiting, seen = list(sources), set(sources)
    while waiting:
        file = waiting.pop()
        for name, quoted in _lines(file):
            beside = file.parent / name
            if not beside.is_file():
                yield name, quoted, file
            elif beside not in seen:
                waiting.append(beside)
                seen.add(beside)


def digest(names: Iterable[str], folders: Sequence[Path]) -> str:
    """SHA-256 over these headers and all that they include from these folders."""
    hashed, waiting, seen = hashlib.sha256(), sorted(names), set[Path]()
    while waiting:
        name = waiting.pop()
        path = in_folders(name, folders)
        if path is None or path in seen:
            continue
        seen.add(path)
        hashed.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
        below = sorted(included(path))
        waiting += [*below, *(str(Path(name).parent / inner) for inner in below)]
    return hashed.hexdigest()


def told(header: Library, way_out: str) -> Finding:
    """The finding about a header that sources want. way_out: what to do besides installing it."""
    if header.path:
        return Finding(header.name, Verdict.GOOD, header.path)
    text = f"header {header.name} (package {header.package}) was not found"
    return Finding(header.name, Verdict.BAD, text, f"install {header.package}, or {way_out}")
