"""The torch chip on the host's torch device."""

from __future__ import annotations

import pytest

from anychip.contract.discovery import open_chip


@pytest.fixture
def opened():
    """Opens the chip with options; closes it at the end."""
    chips = []

    def get(**options):
        given = {name: str(value) for name, value in options.items()}
        chips.append(open_chip("torch", 0, given))
        return chips[-1]

    yield get
    for chip in chips:
        chip.close()


@pytest.fixture
def chip(opened):
    return opened()
