"""How busy a chip that is the host says it is."""

from __future__ import annotations

import time

import pytest

from anychip.contract.discovery import open_chip
from anychip.contract.host import CoreUse


class Clock:
    """Wall and processor seconds that a test sets."""

    wall = used = 0.0

    def monotonic(self):
        return self.wall

    def process_time(self):
        return self.used


def test_the_share_is_of_the_cores_since_the_call_before(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("anychip.contract.host.time", clock)
    use = CoreUse(2)
    assert use.share() is None  # nothing can be said yet
    clock.wall, clock.used = 1.0, 1.0
    assert use.share() == 0.5
    clock.wall = 1.01
    assert use.share() == 0.5  # too soon for another
    clock.wall, clock.used = 2.0, 1.0
    assert use.share() == 0.0
    clock.wall, clock.used = 3.0, 4.5
    assert use.share() == 1.0  # threads of other libraries on more cores count as busy


@pytest.mark.parametrize("name", ["cpu", "torch"])
def test_chips_on_the_host_tell_their_memory_and_how_busy_they_are(name):
    chip = open_chip(name, 0, {})
    try:
        deadline = time.monotonic() + 30
        while (reading := chip.telemetry.read()).utilization is None:
            assert time.monotonic() < deadline
        assert 0 <= reading.utilization <= 1
        assert reading.memory.total == chip.memory.info().total
        assert reading.temperature is None and reading.power is None
    finally:
        chip.close()
