"""Which headers of an SDK some sources include: so that a missing one is told by its name, and a
changed one compiles again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from anychip.contract.build import Finding, Library, Verdict
from anychip.contract.loader import in_folders

_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def included(file: Path) -> tuple[str, ...]:
    """Names in the include lines of a file, conditions not looked at."""
    text = file.read_text(encoding="utf-8", errors="replace")
    return tuple(quoted or angled for quoted, angled in _INCLUDE.findall(text))


def wanted(sources: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Headers in a folder, as sdk/runtime.h, that do not lie beside the sources -> who includes
    each: a source, or a header beside it that sources include."""
    found: dict[str, tuple[Path, ...]] = {}
    waiting, seen = list(sources), set(sources)
    while waiting:
        file = waiting.pop()
        for name in included(file):
            beside = file.parent / name
            if beside.is_file():
                waiting += [] if beside in seen else [beside]
                seen.add(beside)
            elif "/" in name and not name.startswith("sys/"):
                found[name] = (*found.get(name, ()), file)
    return dict(sorted(found.items()))


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
