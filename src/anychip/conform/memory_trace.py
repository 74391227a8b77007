"""M3: an allocation trace of a long day loses no memory and mixes up no bytes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np

from anychip.conform.expect import expect, judged
from anychip.conform.proof import Proof, passed
from anychip.conform.scratch import (
    GIB,
    MIB,
    Bytes,
    Scratch,
    expect_bytes,
    expect_returned,
    look,
    noise,
    read,
    write,
)
from anychip.conform.subject import Subject
from anychip.contract.layer import empty_slots
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor

OPERATIONS = 2000
SEED = 20240229
LARGEST = 4 * MIB
MOST = 256 * MIB
"""Bytes that live at a time: at most these, and at most a quarter of what is free."""
LARGE_EVERY = 16
PERIOD = 251
"""A prime: patterns of neighbours, shifted against each other, meet nowhere."""


@dataclass(frozen=True)
class _Sizes:
    """Bounds in bytes. large: of every 16th allocation. budget: of all that live."""

    small: int
    large: int
    budget: int


def _sizes(free: int) -> _Sizes:
    budget = min(MOST, free // 4)
    small = max(min(LARGEST, budget // 16), 1)
    return _Sizes(small, max(min(2 * small, budget // 2), 1), budget)


class _Trace:
    """Live tensors, each with a pattern of its own."""

    def __init__(self, chip: Chip, scratch: Scratch, sizes: _Sizes) -> None:
        self._chip, self._scratch, self._sizes = chip, scratch, sizes
        self._choose = random.Random(SEED)
        self._ramp = np.resize(np.arange(PERIOD, dtype=np.uint8), sizes.large + PERIOD)
        self._live: list[tuple[int, Tensor]] = []
        self.allocations = 0
        self.bytes = 0

    def step(self) -> None:
        """Allocate and fill one buffer, or verify and free one."""
        nbytes = self._next_size()
        full = self.bytes + nbytes > self._sizes.budget
        if self._live and (full or self._choose.random() < 0.45):
            self._free(self._choose.randrange(len(self._live)))
        elif not full:
            self._allocate(nbytes)

    def _next_size(self) -> int:
        if self.allocations % LARGE_EVERY == LARGE_EVERY - 1:
            return self._sizes.large
        return int(math.exp(self._choose.uniform(0.0, math.log(self._sizes.small))))

    def _allocate(self, nbytes: int) -> None:
        tensor = self._scratch.bytes(nbytes)
        write(self._chip, tensor, self._pattern(self.allocations, nbytes))
        self._live.append((self.allocations, tensor))
        self.allocations += 1
        self.bytes += nbytes

    def _free(self, position: int) -> None:
        number, tensor = self._live.pop(position)
        what = f"allocation {number} of {tensor.nbytes:,} bytes before its free"
        expect_bytes(read(self._chip, tensor), self._pattern(number, tensor.nbytes), what)
        self._scratch.free(tensor)
        self.bytes -= tensor.nbytes

    def _pattern(self, number: int, nbytes: int) -> Bytes:
        """A ramp that begins where the number says, and the number itself where there is room."""
        content: Bytes = self._ramp[number % PERIOD :][:nbytes].copy()
        if nbytes >= 8:
            content[:8] = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
        return content

    def end(self) -> None:
        """Verify and free everything."""
        while self._live:
            self._free(len(self._live) - 1)


@judged
def allocation_trace(subject: Subject) -> Proof:
    """2,000 seeded operations, then as much memory as before, in one piece."""
    chip = subject.chip
    start = look(chip)
    free = start.info.free
    told = _run(chip, _sizes(free))
    if min(look(chip).used_since(start)) > noise(chip) > 0:
        # The host's allocator may keep some of what was freed: a second time it would be reused.
        start = look(chip)
        told = _run(chip, _sizes(free))
    expect_returned(chip, start, f"{OPERATIONS:,} allocations and frees")
    half = min(GIB, max(free - noise(chip), free // 2) // 2)
    with Scratch(chip) as scratch:
        scratch.bytes(half)
    return passed(f"{told}; afterwards one of {half:,} bytes", operations=OPERATIONS)


def _run(chip: Chip, sizes: _Sizes) -> str:
    """The whole trace; what it did. Raises Broken."""
    pool = ""
    with Scratch(chip) as scratch:
        trace = _Trace(chip, scratch, sizes)
        for number in range(OPERATIONS):
            trace.step()
            if number == OPERATIONS // 2:
                pool = _pool(chip, trace.bytes)
        trace.end()
    return f"{trace.allocations:,} allocations of up to {sizes.large:,} bytes{pool}"


def _pool(chip: Chip, live: int) -> str:
    """What the pool says of itself while `live` bytes are handed out. Raises Broken."""
    if "statistics" in empty_slots(type(chip.memory)):
        return ""
    said = chip.memory.statistics()
    expect(said.asked >= live, f"statistics().asked is {said.asked:,}, {live:,} bytes are live")
    text = f"statistics().used {said.used:,} is less than asked {said.asked:,}"
    expect(said.used >= said.asked, text)
    share = said.fragmentation
    expect(0 <= share <= 1, f"statistics().fragmentation is {share}, not a share of 0 to 1")
    return f"; fragmentation {share:.0%} in the middle"
