"""Slabs whose huge pages come slowly are filled through small ones, and gathered afterwards."""

from __future__ import annotations

import threading

import pytest

from anychip.chips.cpu.memory_pages import (
    COLLAPSE,
    HUGE_PAGE,
    LARGE,
    SMALL,
    Pages,
    advise_system,
)
from anychip.chips.cpu.memory_slabs import SLAB, Slabs
from served import wait_until

MIB = 1 << 20
QUICK_S, SLOW_S = 0.0, 1.0


class System:
    """Notes what it is told; the page at `slow` (bytes of the first slab) does not come quickly."""

    def __init__(self, slow: int | None) -> None:
        self.slow, self.start = slow, 0
        self.touched: list[int] = []
        self.told: list[tuple[int, int, int]] = []

    def touch(self, array, at):
        self.start = self.start or array.ctypes.data + at
        self.touched.append(array.ctypes.data + at - self.start)
        return SLOW_S if self.touched[-1] == self.slow else QUICK_S

    def advise(self, address, nbytes, advice):
        self.told.append((address - self.start, nbytes, advice))
        return True


def slabs_on(system, quiet_s=0.0):
    pages = Pages(system.advise, system.touch, quiet_s)
    return Slabs(pages), pages


def ended() -> bool:
    return not [one for one in threading.enumerate() if one.name == "anychip-pages"]


def test_each_page_is_timed_once_and_none_without_a_block() -> None:
    system = System(slow=None)
    slabs, _ = slabs_on(system)
    blocks = [slabs.cut(MIB) for _ in range(5)]
    assert len(blocks) == 5 and system.told == []
    assert system.touched == [0, HUGE_PAGE, 2 * HUGE_PAGE]


def test_a_slow_page_makes_the_rest_of_its_slab_small_until_no_block_comes() -> None:
    system = System(slow=HUGE_PAGE)
    slabs, pages = slabs_on(system, quiet_s=60)
    blocks = [slabs.cut(HUGE_PAGE), slabs.cut(3 * MIB), slabs.cut(9 * MIB)]
    small = 2 * HUGE_PAGE
    assert system.touched == [0, HUGE_PAGE]
    assert system.told == [(small, SLAB - small, SMALL)]
    pages.close()
    assert ended() and len(blocks) == 3
    assert len(system.told) == 1


def test_what_blocks_have_is_gathered_page_by_page() -> None:
    system = System(slow=0)
    slabs, _ = slabs_on(system)
    block = slabs.cut(5 * MIB)
    wait_until(ended)
    rest = (HUGE_PAGE, SLAB - HUGE_PAGE)
    assert block.size == 5 * MIB
    assert system.told == [
        (*rest, SMALL),
        (*rest, LARGE),
        (HUGE_PAGE, HUGE_PAGE, COLLAPSE),
        (2 * HUGE_PAGE, HUGE_PAGE, COLLAPSE),
    ]


def test_a_slab_that_is_gone_is_left_alone() -> None:
    system = System(slow=0)
    slabs, pages = slabs_on(system, quiet_s=0.2)
    block = slabs.cut(MIB)
    del block
    wait_until(ended)
    assert [advice for _, _, advice in system.told] == [SMALL]
    pages.close()


def test_where_the_system_cannot_gather_nothing_is_tried() -> None:
    system = System(slow=0)
    slabs = Slabs(Pages(None, system.touch))
    assert slabs.cut(MIB).size == MIB
    assert system.touched == []


@pytest.mark.skipif(advise_system() is None, reason="needs Linux 6.1")
def test_bytes_stay_as_they_are_while_the_system_gathers_them() -> None:
    """By the real system, which may have no huge page to give: then all stays small."""
    pages = Pages(advise_system(), lambda array, at: SLOW_S, quiet_s=0.3)
    slabs = Slabs(pages)
    block = slabs.cut(6 * MIB)
    block[:] = 7
    wait_until(ended)
    assert (block == 7).all()
    block[::4096] = 8
    assert int(block[::4096].sum()) == 8 * (6 * MIB // 4096)
