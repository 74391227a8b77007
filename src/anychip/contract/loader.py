"""How the system's loader goes about libraries: in which order, and what it took from where."""

from __future__ import annotations

import ctypes
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anychip.contract.elf import NoSharedLibrary, dynamic

MAPS = Path("/proc/self/maps")
_SONAME = re.compile(r"(.+\.so(?:\.\d+)?)(?:\.\d+)*$")
_EXTENSION = re.compile(r"\.(cpython-[^/]*|abi3)\.so$")


def load_order(wanted: Iterable[Path], folders: Sequence[Path]) -> tuple[Path, ...]:
    """These files, and what they need of these folders, each behind what it needs."""
    order: dict[Path, Path] = {}

    def visit(path: Path, above: frozenset[Path]) -> None:
        real = path.resolve()
        if real in order or real in above:
            return
        for name in needed(path):
            below = in_folders(name, folders)
            if below is not None:
                visit(below, above | {real})
        order[real] = path

    for path in wanted:
        visit(path, frozenset())
    return tuple(order.values())


def needed(path: Path) -> tuple[str, ...]:
    """Sonames that a library needs; none where it cannot be read, which loading then tells."""
    try:
        return dynamic(path).needed
    except (OSError, NoSharedLibrary):
        return ()


def soname(path: Path) -> tuple[str, ...]:
    """The name by which others need a library; none where it has none or cannot be read."""
    try:
        name = dynamic(path).soname
    except (OSError, NoSharedLibrary):
        return ()
    return (name,) if name else ()


def in_folders(name: str, folders: Sequence[Path]) -> Path | None:
    """The first file of that name in these folders."""
    return next((f / name for f in folders if os.path.isfile(f / name)), None)


def stem(path: str) -> str:
    """`libfoo` of "/a/libfoo.so.1"."""
    return Path(path).name.partition(".so")[0]


def load_all(question: Mapping[str, Any]) -> dict[str, Any]:
    """In a child: load `paths` in order for all to see, every symbol at once.

    lacking: path -> why it was not loaded. twins: name -> files, where it came twice. absent: which
    of the `symbols` no loaded library has.
    """
    before, lacking = mapped_files(), {}
    for path in question["paths"]:
        try:
            load(path)
        except OSError as error:
            lacking[path] = str(error)
    stems = {stem(path) for path in question["paths"]}
    everything = ctypes.CDLL(None)
    absent = [s for s in question["symbols"] if not hasattr(everything, s)]
    return {
        "lacking": lacking,
        "twins": twins(before, mapped_files(), stems),
        "absent": absent,
    }


def load(path: str) -> ctypes.CDLL:
    """Load one library, its symbols for all to see. Raises OSError."""
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def mapped_files() -> set[str]:
    """Shared libraries of this process, extension modules of Python left out."""
    lines = (line.split(maxsplit=5) for line in MAPS.read_text().splitlines())
    paths = {words[5].strip() for words in lines if len(words) == 6}
    return {p for p in paths if _SONAME.search(p) and not _EXTENSION.search(p)}


def twins(before: set[str], after: set[str], stems: Iterable[str] = ()) -> dict[str, list[str]]:
    """Names that are there from two files, at least one of them loaded since `before`.

    stems: libraries of which two are one too many whatever number is behind their names.
    """
    files, single = defaultdict(list), set(stems)
    for path in sorted(after):
        match = _SONAME.search(Path(path).name)
        if match is not None:
            files[stem(path) if stem(path) in single else match[1]].append(path)
    return {n: paths for n, paths in files.items() if len(paths) > 1 and set(paths) - before}


def loader_path() -> tuple[Path, ...]:
    """Folders of LD_LIBRARY_PATH, where the loader looks in this process and its children."""
    text = os.environ.get("LD_LIBRARY_PATH", "")  # noqa: TID251 - the loader's variable, not ours
    return tuple(Path(folder) for folder in text.split(":") if folder)


def run_path(path: Path) -> tuple[Path, ...]:
    """Folders in which a library has its needs looked for first; none where it has none."""
    try:
        return dynamic(path).run_path
    except (OSError, NoSharedLibrary):
        return ()
