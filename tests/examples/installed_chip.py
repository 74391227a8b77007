"""A chip's package as pip would install it: its folder and a .dist-info on the path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def entry_points(pyproject: str) -> str:
    """What pip would write into entry_points.txt, from [project.entry-points."GROUP"]."""
    group, lines = re.search(r'\[project\.entry-points\."(.+?)"\]\n((?:.+\n)+)', pyproject).groups()
    return f"[{group}]\n" + lines.replace('"', "")


@contextmanager
def installed(package: Path, site: Path) -> Iterator[Path]:
    """In here `--backend NAME` finds the chip of `package`, in child processes of chips too.

    site: an empty folder for what pip would write.
    """
    text = (package / "pyproject.toml").read_text()
    name, version = re.search(r'name = "(.+)"\nversion = "(.+)"', text).groups()
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.syspath_prepend(str(package))
        yield package
