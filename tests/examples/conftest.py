"""Pebble as an installed distribution, without pip: its folder and a .dist-info on the path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PEBBLE = Path(__file__).parents[2] / "examples" / "pebble"


def entry_points(pyproject: str) -> str:
    """What pip would write into entry_points.txt, from [project.entry-points."GROUP"]."""
    group, lines = re.search(r'\[project\.entry-points\."(.+?)"\]\n((?:.+\n)+)', pyproject).groups()
    return f"[{group}]\n" + lines.replace('"', "")


@pytest.fixture(scope="module")
def pebble(tmp_path_factory) -> Path:
    """The example's folder; while a module's tests run, `--backend pebble` finds it."""
    site = tmp_path_factory.mktemp("site")
    info = site / "anychip_pebble-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: anychip-pebble\nVersion: 0.1.0\n")
    text = entry_points((PEBBLE / "pyproject.toml").read_text())
    (info / "entry_points.txt").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.syspath_prepend(str(PEBBLE))
        yield PEBBLE
