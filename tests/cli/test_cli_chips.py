"""`anychip chips` over doubles of the discovery."""

from __future__ import annotations

import json

import pytest

from anychip.__main__ import main
from anychip.contract.discovery import ChipListing


@pytest.fixture
def listed(monkeypatch):
    def list_chips(
        timeout: float = 20.0, *, describe: bool = False, kept=None
    ) -> list[ChipListing]:
        facts = {"page_sizes": "16"} if describe else {}
        slots = ("capture",) if describe else ()
        good = ChipListing(
            "good",
            "dist-a",
            "1.2",
            True,
            vendor="V",
            contract=(0, 1),
            devices=("0: card [x]",),
            capabilities=facts,
            empty_slots=slots,
        )
        bad = ChipListing("bad", "dist-b", "3", False, "ImportError: no libcard.so")
        why, options = "no card in this machine", ("memory (int, default 0): MiB",)
        gone = ChipListing("gone", "dist-c", "4", False, why, vendor="W", options=options)
        return [good, bad, gone]

    monkeypatch.setattr("anychip.contract.discovery.list_chips", list_chips)


def test_table_has_every_chip_and_the_reason(listed, capsys):
    assert main(["chips"]) == 0
    out = capsys.readouterr().out
    assert "good" in out and "0.1" in out and "card [x]" in out
    assert "\nbad is not available: ImportError: no libcard.so\n" in out


def test_verbose_adds_capabilities(listed, capsys):
    assert main(["chips", "-v"]) == 0
    out = capsys.readouterr().out
    assert "page_sizes: 16" in out and "empty slots: capture" in out


def test_verbose_says_of_each_unavailable_chip_why_and_what_is_known(listed, capsys):
    assert main(["chips", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    bad, gone = lines.index("bad:"), lines.index("gone:")
    assert lines[bad + 1 : gone] == ["  not available: ImportError: no libcard.so"]
    assert lines[gone + 1 :] == [
        "  not available: no card in this machine",
        "  options (--chip-option NAME=VALUE):",
        "    memory (int, default 0): MiB",
    ]


def test_json(listed, capsys):
    assert main(["chips", "--json", "-v"]) == 0
    first, second, _ = json.loads(capsys.readouterr().out)
    assert first["contract"] == [0, 1] and first["capabilities"] == {"page_sizes": "16"}
    assert second["available"] is False and "libcard" in second["reason"]


def test_unknown_flag(capsys):
    assert main(["chips", "--all"]) == 2
    assert "--all" in capsys.readouterr().err
