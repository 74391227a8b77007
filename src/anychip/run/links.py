"""How fast each device is reached from the host: what one process can tell of slow links."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychip.contract.build import Finding, Verdict
from anychip.contract.discovery import open_chip
from anychip.contract.dtype import DType
from anychip.contract.registration import Device
from anychip.contract.tensor import Tensor

COPIED = 16 * 2**20
"""Bytes of one copy, where the device has that much memory."""
REPEATS = 3
SLOW = 0.5
"""Part of the fastest device's rate: a device below it is told."""


@dataclass(frozen=True)
class LinkSpeed:
    """Bytes a second, the best of a few copies."""

    into: float
    out_of: float

    def __str__(self) -> str:
        return f"{self.into / 1e6:,.0f} MB/s in, {self.out_of / 1e6:,.0f} MB/s out"


def copy_speed(question: Mapping[str, Any]) -> dict[str, float]:
    """In a child: open the device, copy there and back. question: chip, device, options as typed.

    Raises what opening and copying raise.
    """
    chip = open_chip(question["chip"], question["device"], question["options"])
    try:
        nbytes = max(1, min(COPIED, chip.memory.info().largest // 2))
        content = bytearray(nbytes)
        buffer = chip.memory.allocate(nbytes)
        tensor = Tensor((nbytes,), DType.UINT8, buffer=buffer)
        into = min(_seconds(lambda: chip.memory.copy_in(tensor, memoryview(content)), chip))
        out_of = min(_seconds(lambda: chip.memory.copy_out(tensor, memoryview(content)), chip))
        chip.memory.free(buffer)
    finally:
        chip.close()
    return {"into": nbytes / into, "out_of": nbytes / out_of}


def _seconds(copy: Any, chip: Any) -> list[float]:
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        copy()
        chip.queue.synchronize(None)
        spent.append(time.perf_counter() - began)
    return spent


def rank_findings(devices: Sequence[Device], given: str = "") -> list[Finding]:
    """Which card each rank has; red where two ranks have one. given: what chose the cards."""
    found, owner = [], dict[str, int]()
    for rank, device in enumerate(devices):
        size = f", {device.memory / 2**20:,.0f} MiB" if device.memory else ""
        uid = f" ({device.uid})" if device.uid else ""
        text = f"device {device.index}: {device.name}{uid}{size}"
        first = owner.setdefault(device.uid, rank) if device.uid else rank
        if first == rank:
            found.append(Finding(f"rank {rank}", Verdict.GOOD, text))
        else:
            text += f": the same card as rank {first} has"
            chosen = given or "the chip's option for visible devices"
            step = f"let each rank see a card of its own ({chosen})"
            found.append(Finding(f"rank {rank}", Verdict.BAD, text, step))
    return found


def link_findings(speeds: Mapping[int, LinkSpeed]) -> list[Finding]:
    """One finding; yellow where a device is reached much more slowly than the fastest."""
    if not speeds:
        return []
    best_in = max(s.into for s in speeds.values())
    best_out = max(s.out_of for s in speeds.values())
    told = "; ".join(f"device {index}: {speed}" for index, speed in speeds.items())
    slow = [
        str(index)
        for index, speed in speeds.items()
        if speed.into < SLOW * best_in or speed.out_of < SLOW * best_out
    ]
    if not slow:
        return [Finding("links", Verdict.GOOD, told)]
    text = f"{told}. Device {', '.join(slow)} has a slow link: more cards are slower with it"
    step = "compare the cards' slots and cables, or leave that card out"
    return [Finding("links", Verdict.UNKNOWN, text, step)]
