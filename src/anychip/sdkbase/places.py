"""Where the parts of a vendor's SDK lie: folders and libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def expanded(text: str) -> Path:
    """A path, `~` filled in where there is a home folder."""
    return Path(os.path.expanduser(text))


def paths_of(text: str) -> tuple[Path, ...]:
    """The paths of "A,B", each as `expanded` gives it."""
    return tuple(expanded(part) for part in text.split(",") if part)


def folders_below(
    root: Path | None, parts: Iterable[str], names: Sequence[str]
) -> tuple[Path, ...]:
    """Folders of these names below a root, below its parts, and below the parts beside it.

    An SDK is one tree, or a tree a part; empty where there is no root.
    """
    if root is None:
        return ()
    homes = (root, *(home / part for home in (root, root.parent) for part in parts))
    found = (home / name for home in homes for name in names)
    return tuple(dict.fromkeys(folder for folder in found if os.path.isdir(folder)))


def libraries_in(names: Iterable[str], folders: Sequence[Path]) -> dict[str, Path]:
    """Name -> its first file: libNAME.so, else one with a number behind; no entry where none is."""
    found: dict[str, Path] = {}
    for name in names:
        files = (f for folder in folders for f in sorted(folder.glob(f"lib{name}.so*")))
        first = next((f for f in files if f.is_file()), None)
        if first is not None:
            found[name] = first
    return found
