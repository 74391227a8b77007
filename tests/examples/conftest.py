"""Pebble as an installed distribution."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.installed_chip import installed

PEBBLE = Path(__file__).parents[2] / "examples" / "pebble"


@pytest.fixture(scope="module")
def pebble(tmp_path_factory) -> Path:
    """The example's folder; while a module's tests run, `--backend pebble` finds it."""
    with installed(PEBBLE, tmp_path_factory.mktemp("site")) as folder:
        yield folder
