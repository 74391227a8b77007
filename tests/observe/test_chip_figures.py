"""docs/metrics.md says of each chip what it tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))
import chip_figures  # noqa: E402 (a program, found by its folder)


@pytest.mark.parametrize("word", ["cpu", "fake", "fake:block_step=4", "torch"])
def test_the_row_is_what_the_opened_chip_tells(word):
    if word == "torch":
        pytest.importorskip("torch")
    row = chip_figures.line(chip_figures._asked(word))
    assert row in (ROOT / "docs" / "metrics.md").read_text().splitlines()
