"""Weights lie in huge pages, close together, and give their slabs back."""

from __future__ import annotations

import weakref

import pytest

from anychip.chips.cpu.memory import HostStore
from anychip.chips.cpu.memory_slabs import HUGE_PAGE, SLAB, Slabs
from anychip.contract.errors import ChipError

MIB = 1 << 20


def place(block):
    return block.ctypes.data


def test_a_slab_begins_at_a_huge_page_and_blocks_follow_each_other() -> None:
    slabs = Slabs()
    first, second, third = slabs.cut(100), slabs.cut(0), slabs.cut(64)
    assert place(first) % HUGE_PAGE == 0
    assert [place(block) - place(first) for block in (second, third)] == [128, 192]
    assert [block.size for block in (first, second, third)] == [128, 64, 64]


def test_what_a_large_block_leaves_is_used_by_smaller_ones() -> None:
    slabs = Slabs()
    large = [slabs.cut(SLAB - 2 * MIB), slabs.cut(SLAB + 1), slabs.cut(SLAB - 2 * MIB)]
    small = [slabs.cut(MIB + 1), slabs.cut(MIB), slabs.cut(MIB)]
    assert all(place(block) % HUGE_PAGE == 0 for block in large)
    assert place(small[0]) == place(large[0]) + large[0].size
    assert place(small[1]) == place(large[1]) + large[1].size
    assert place(small[2]) == place(large[2]) + large[2].size


def test_weights_of_many_sizes_touch_hardly_more_than_they_have() -> None:
    """As a model's layers: with each slab's end given up this would be four huge pages more."""
    slabs, sizes = Slabs(), [1105920, 663552, 3538944, 1769472]
    blocks = [slabs.cut(size) for _ in range(30) for size in sizes]
    touched = {at // HUGE_PAGE for b in blocks for at in (*range(place(b), place(b) + b.size, 4096),
                                                          place(b) + b.size - 1)}  # fmt: skip
    assert len(touched) <= -(-30 * sum(sizes) // HUGE_PAGE) + 1


def test_a_slab_goes_with_its_last_block() -> None:
    slabs = Slabs()
    blocks = [slabs.cut(MIB), slabs.cut(MIB)]
    slab = weakref.ref(blocks[0].base)
    assert slab() is not None
    del blocks[0]
    assert slab() is not None
    del blocks[0]
    assert slab() is None
    assert place(slabs.cut(SLAB)) % HUGE_PAGE == 0


def test_the_store_cuts_what_lives_long_and_nothing_else() -> None:
    store = HostStore(0)
    kept = [store.take(n, long_lived=True) for n in (100, 0, 5000)]
    passing = store.take(100)
    first = kept[0].handle.address
    assert [b.handle.address - first for b in kept] == [0, 128, 192]
    assert all(b.handle.raw.size == b.nbytes for b in kept)
    assert not first <= passing.handle.address < first + SLAB
    for block in (*kept, passing):
        store.give(block)
    assert store.used == 0
    with pytest.raises(ChipError, match="freed twice"):
        store.give(kept[0])
