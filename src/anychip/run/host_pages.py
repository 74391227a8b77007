"""Pages of the cache in host memory: slots, and the copies that a plan's moves ask for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anychip.contract.cache import CacheView
from anychip.contract.host import HostFacts
from anychip.contract.memory import Memory
from anychip.contract.tensor import Tensor
from anychip.plan import PageMove
from anychip.run.memory_plan import MemoryPlan, NotEnoughMemory

RATIO = 2.0
"""Slots for each page of the cache, where nobody says otherwise: SGLang's."""

MOST = 0.8
"""Share of the host's available memory that slots may take at the most: others live there too."""


def planned_slots(plan: MemoryPlan, ratio: float | None, size_gb: int, host: HostFacts) -> int:
    """Slots of host memory. size_gb: 10**9 bytes; 0: by the ratio, None is RATIO.

    Raises NotEnoughMemory.
    """
    asked = f"--hicache-size {size_gb}"
    slots = size_gb * 10**9 // plan.page_bytes
    if not size_gb:
        ratio = RATIO if ratio is None else ratio
        asked, slots = f"--hicache-ratio {ratio:g}", int(plan.pages * ratio)
    most = int(host.available * MOST) // plan.page_bytes
    if slots > most:
        raise NotEnoughMemory(
            f"{asked} is {slots * plan.page_bytes / 2**20:,.0f} MiB of host memory; "
            f"{host.available / 2**20:,.0f} MiB are available ({host.source}), {MOST:.0%} of "
            f"which may go there; ask for {most / max(plan.pages, 1):.3g} times the cache or less"
        )
    if slots < 1:
        raise NotEnoughMemory(
            f"{asked} has room for no page of {plan.page_bytes:,} bytes; ask for more"
        )
    return slots


class HostPages:
    """Slots 1 .. `slots`, a page's keys and values of all layers each.

    They are address space until they are written.
    """

    def __init__(self, memory: Memory, caches: tuple[CacheView, ...], slots: int) -> None:
        self._memory, self._slots = memory, slots
        self._halves = [half for cache in caches for half in cache.halves]
        self._half_bytes = caches[0].spec.group.layer_page_bytes if caches else 0
        page_bytes = len(self._halves) * self._half_bytes
        self._bytes = np.empty((slots if caches else 0, page_bytes), np.uint8)

    def run(self, moves: Iterable[PageMove]) -> None:
        """Do the moves one after the other. Raises ChipError."""
        for move in moves:
            self._run(move)

    def _run(self, move: PageMove) -> None:
        assert 1 <= move.slot <= self._slots, f"host slot {move.slot} of {self._slots}"
        row, size = memoryview(self._bytes[move.slot - 1]), self._half_bytes
        for index, half in enumerate(self._halves):
            page = _page(half, move.page, size)
            place = row[index * size : (index + 1) * size]
            if move.to_host:
                self._memory.copy_out(page, place)
            else:
                self._memory.copy_in(page, place)


def _page(half: Tensor, page: int, nbytes: int) -> Tensor:
    """One page of a layer's keys or values in a row, whatever the layout inside it."""
    count = nbytes // half.dtype.itemsize
    return Tensor((count,), half.dtype, buffer=half.buffer, offset=half.offset + page * nbytes)
