"""How fast each device is reached, and who has which: one device, several, a slow one, none."""

from __future__ import annotations

import os
import re
import time

import pytest

from anychip.chips.fake.memory import FakeMemory
from anychip.chips.fake.registration import FakeChip
from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.registration import Device, Option, Probe, register_chip
from anychip.run.doctor import ChipLooks
from anychip.run.links import COPIED, LinkSpeed, copy_speed, link_findings, rank_findings

WAIT_S = 0.3


class Slow(FakeMemory):
    """Each copy to the device takes its time."""

    def copy_in(self, target, source) -> None:
        time.sleep(WAIT_S)
        super().copy_in(target, source)


@register_chip("linked", contract=(0, 3))
class Linked(FakeChip):
    """Several devices: one behind a slow link, one that takes its process with it."""

    options = (
        *FakeChip.options,
        Option("devices", int, 3, "how many there are"),
        Option("slow", int, -1, "the device that is reached slowly"),
        Option("dead", int, -1, "the device that ends its process"),
    )

    @classmethod
    def probe(cls, options):
        found = (Device(n, "a card", 2**30, f"0000:{n:02}") for n in range(options["devices"]))
        return Probe(tuple(found))

    @classmethod
    def open(cls, device, options):
        if device == options["dead"]:
            os._exit(3)
        chip = cls(options)
        if device == options["slow"]:
            sound = chip.memory
            chip.memory = Slow(sound._store, sound._put, sound._wait)
        return chip


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """While a test runs, `--backend linked` finds the chip, as if pip had installed it."""
    info = tmp_path / "linked-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linked\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[anychip.chips]\nlinked = test_links:Linked\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def links(**options: str) -> list[Finding]:
    looks = ChipLooks(ServeConfig(backend="linked", chip_option=options))
    (look,) = [one for one in looks.all() if one.name == "links"]
    return list(look.take())


def asked(**options: str) -> dict:
    return {"chip": "linked", "device": 0, "options": options}


def speed(into: float, out_of: float | None = None) -> LinkSpeed:
    return LinkSpeed(into * 1e6, (into if out_of is None else out_of) * 1e6)


def test_speed_is_bytes_a_second_both_ways() -> None:
    found = copy_speed(asked(slow="0"))
    assert 0 < found["into"] <= COPIED / WAIT_S < found["out_of"]


def test_small_device_is_measured_with_less_and_closed(monkeypatch) -> None:
    closed = []
    monkeypatch.setattr(Linked, "close", lambda self: closed.append(self))
    assert copy_speed(asked(memory="1M"))["into"] > 0
    assert len(closed) == 1


def test_device_that_fails_in_a_copy_is_closed(monkeypatch) -> None:
    closed = []

    def broken(self, target, source) -> None:
        raise OSError("the bus is gone")

    monkeypatch.setattr(Linked, "close", lambda self: closed.append(self))
    monkeypatch.setattr(FakeMemory, "copy_out", broken)
    with pytest.raises(OSError, match="the bus is gone"):
        copy_speed(asked())
    assert len(closed) == 1


def test_one_device_has_nobody_to_be_compared_with() -> None:
    (found,) = links(devices="1", slow="0")
    assert found.verdict is Verdict.GOOD
    assert found.text.startswith("device 0: ") and "MB/s in, " in found.text


def test_slow_link_among_several_is_yellow_and_named() -> None:
    (found,) = links(slow="1")
    assert found.verdict is Verdict.UNKNOWN and found.step
    assert all(f"device {n}: " in found.text for n in range(3))
    # Busy cores may make another look slow beside it.
    assert re.search(r"Device (0, )?1(, 2)? has a slow link", found.text)


def test_device_whose_process_dies_costs_its_own_number() -> None:
    dead, found = links(dead="0", devices="2")
    assert dead.verdict is Verdict.UNKNOWN and dead.step
    assert dead.text.startswith("no copy to or from device 0: exit status 3")
    assert found.text.startswith("device 1: ") and "device 0" not in found.text


def test_no_device_answers() -> None:
    (found,) = links(dead="0", devices="1")
    assert found.verdict is Verdict.UNKNOWN and "no copy to or from device 0" in found.text


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ({0: speed(9000), 1: speed(4600)}, ""),
        ({0: speed(9000), 1: speed(4400)}, "1"),
        ({0: speed(9000), 3: speed(9000, 4000)}, "3"),
        ({0: speed(100), 1: speed(9000), 2: speed(200)}, "0, 2"),
        ({5: speed(1)}, ""),
    ],
)
def test_slow_is_less_than_half_of_the_fastest(speeds, slow) -> None:
    (found,) = link_findings(speeds)
    assert found.verdict is (Verdict.UNKNOWN if slow else Verdict.GOOD)
    assert (f"Device {slow} has a slow link" in found.text) == bool(slow)


def test_nothing_measured_is_no_finding() -> None:
    assert link_findings({}) == []


def device(index: int, uid: str, memory: int = 0) -> Device:
    return Device(index, "a card", memory, uid)


def test_ranks_that_share_a_card_are_red() -> None:
    found = rank_findings([device(0, "a"), device(1, "b"), device(2, "a"), device(3, "a")])
    assert [f.name for f in found] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    verdicts = [f.verdict for f in found]
    assert verdicts == [Verdict.GOOD, Verdict.GOOD, Verdict.BAD, Verdict.BAD]
    for shared in found[2:]:
        assert "the same card as rank 0 has" in shared.text and "visible" in shared.step


def test_cards_without_an_identity_are_not_taken_for_one() -> None:
    found = rank_findings([device(0, ""), device(1, ""), device(2, "a", 3 * 2**30)])
    assert {f.verdict for f in found} == {Verdict.GOOD}
    assert found[2].text == "device 2: a card (a), 3,072 MiB"
