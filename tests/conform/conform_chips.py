"""Chips for tests of the kit: a subject of a class, and a chip that is installed for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from anychip.chips.fake.registration import FakeChip
from anychip.conform.subject import Subject
from anychip.contract.registration import Chip, read_options

GRANITE = """
import os
from anychip.chips.fake.registration import FakeChip
from anychip.contract.registration import register_chip
{before}

@register_chip("granite", contract=(0, 1))
class Granite(FakeChip):
    vendor = "quarry"
{body}
"""


def subject(cls: type[Chip] = FakeChip, **options: str) -> Subject:
    """What the kit is given; the chip is small."""
    return Subject(cls, 0, read_options(cls, {"memory": "64M", **options}))


def install_granite(
    site: Path, patch: pytest.MonkeyPatch, *, body: str = "    pass", before: str = ""
) -> None:
    """While a test runs, `--backend granite` is a fake chip with this code in its class."""
    info = site / "granite-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: granite\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[anychip.chips]\ngranite = granite_chip:Granite\n")
    (site / "granite_chip.py").write_text(GRANITE.format(body=body, before=before))
    patch.syspath_prepend(str(site))
