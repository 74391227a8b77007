"""Traces of a download that was not finished."""

from __future__ import annotations

from pathlib import Path

ENDINGS = (".incomplete", ".part", ".partial", ".crdownload", ".aria2", ".download")
"""How download programs call a file that is not whole."""

LFS = b"version https://git-lfs.github.com/spec/"
"""How the few lines begin that Git keeps in place of a large file."""


def unfinished(folder: Path) -> Path | None:
    """A half of a file in a model's folder, or where a hub's client keeps it; None: there is none.

    A hub's cache has blobs beside the snapshots; a copy in a folder of one's own has them in it.
    """
    own = (folder, folder / ".cache" / "huggingface" / "download")
    cache = [folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else []
    for place in [*own, *cache]:
        found: list[Path] = sorted(path for ending in ENDINGS for path in place.glob(f"*{ending}"))
        if found:
            return found[0]
    return None


def fetch_again(folder: Path) -> str:
    """What to do about a file that is not there."""
    half = unfinished(folder)
    if half is None:
        return "fetch the model again"
    return f"a download was not finished ({half} is half a file): start it again"
