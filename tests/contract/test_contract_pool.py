"""The size-class pool: no block twice, nothing lost, a quarter of slack at most."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.contract.errors import ChipError, ErrorKind, out_of_memory
from anychip.contract.pool import SMALLEST, SizeClassPool, size_class
from anychip.contract.tensor import Buffer


class Device:
    """Counts what it gave; blocks are numbers."""

    def __init__(self, capacity=1 << 40):
        self.capacity, self.held, self.made = capacity, {}, 0

    def allocate(self, nbytes):
        free = self.capacity - sum(self.held.values())
        if nbytes > free:
            raise out_of_memory("tests", nbytes, free)
        self.made += 1
        self.held[self.made] = nbytes
        return self.made

    def release(self, block, nbytes):
        assert self.held.pop(block) == nbytes


def pool_of(device):
    return SizeClassPool("tests", device.allocate, device.release)


@given(st.integers(0, 1 << 40))
def test_class_holds_the_request_with_a_quarter_of_slack_at_most(nbytes):
    size = size_class(nbytes)
    assert size >= nbytes and size_class(size) == size
    assert size == SMALLEST or size < 1.25 * nbytes


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 30))
def test_class_grows_with_the_request(a, b):
    assert (size_class(a) <= size_class(b)) or a > b


def test_freed_block_is_reused_within_its_class():
    device = Device()
    pool = pool_of(device)
    first = pool.allocate(1000)
    pool.free(first)
    assert pool.allocate(900).handle == first.handle
    assert pool.allocate(900).handle != first.handle
    assert device.made == 2


def test_full_device_gets_waiting_blocks_back_first():
    device = Device(capacity=2048)
    pool = pool_of(device)
    pool.free(pool.allocate(1024))
    pool.free(pool.allocate(512))
    assert pool.allocate(2000).nbytes == 2000
    assert pool.statistics().cached == 0
    with pytest.raises(ChipError) as caught:
        pool.allocate(300)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY


def test_second_free_and_a_stranger_are_refused():
    pool = pool_of(Device())
    buffer = pool.allocate(10)
    pool.free(buffer)
    for wrong in (buffer, Buffer(1, 10)):
        with pytest.raises(ChipError, match="invalid"):
            pool.free(wrong)


def test_statistics():
    pool = pool_of(Device())
    pool.allocate(300)
    pool.free(pool.allocate(256))
    numbers = pool.statistics()
    assert (numbers.used, numbers.asked, numbers.cached) == (320, 300, 256)
    assert numbers.fragmentation == pytest.approx(20 / 320)
    assert pool.trim() == 256
    assert pool_of(Device()).statistics().fragmentation == 0.0


steps = st.lists(st.tuples(st.sampled_from("aft"), st.integers(0, 5000)), max_size=60)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_whatever_the_order_blocks_are_disjoint_and_none_is_lost(steps):
    device, live = Device(capacity=40_000), []
    pool = pool_of(device)
    for kind, number in steps:
        if kind == "a":
            try:
                live.append(pool.allocate(number))
            except ChipError:
                assert size_class(number) + pool.statistics().used > device.capacity
        elif kind == "f" and live:
            pool.free(live.pop(number % len(live)))
        elif kind == "t":
            pool.trim()
        numbers = pool.statistics()
        assert len({b.handle for b in live}) == len(live)
        assert numbers.used + numbers.cached == sum(device.held.values())
        assert numbers.asked == sum(b.nbytes for b in live)
