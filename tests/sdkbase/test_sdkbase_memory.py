"""Memory over a driver: order, lengths, accounts; the device's copies wait for nothing."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from small_device import PAGE, POOLED, TOTAL, Parts

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.memory import Traffic
from anychip.contract.tensor import Buffer, Tensor
from anychip.sdkbase.memory import SEED


@pytest.fixture(params=[True, False], ids=["copies queued", "copies at once"])
def parts(request):
    opened = Parts(queues_copies=request.param)
    yield opened
    opened.close()
    assert opened.measure().free == TOTAL


def tensor_of(parts, size):
    return Tensor((size,), DType.UINT8, buffer=parts.memory.allocate(size))


def upload(parts, content):
    tensor = tensor_of(parts, content.nbytes)
    parts.memory.copy_in(tensor, content.data)
    return tensor


def download(parts, tensor):
    host = np.zeros(tensor.nbytes, np.uint8)
    parts.memory.copy_out(tensor, host.data)
    return host


def noise(size):
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 255, PAGE + 1, POOLED, POOLED + 1])
def test_bytes_come_back(parts, size):
    assert np.array_equal(download(parts, upload(parts, noise(size))), noise(size))


def test_a_copy_without_a_wait_would_be_wrong_here(parts):
    tensor = upload(parts, np.zeros(8, np.uint8))
    parts.set_bytes(tensor, 7)
    host = np.zeros(8, np.uint8)
    parts.library.call("dev_get", host.ctypes.data, parts.blocks.address(tensor), 8)
    assert (host == 0).all() and (download(parts, tensor) == 7).all()


def test_every_copy_keeps_the_order_of_calls(parts):
    source, target = upload(parts, np.zeros(64, np.uint8)), tensor_of(parts, 64)
    parts.set_bytes(source, 3)
    parts.memory.copy(target, source)
    parts.set_bytes(source, 4)
    parts.memory.copy_in(source.view((8,)), np.ones(8, np.uint8).data)
    assert (download(parts, target) == 3).all()
    assert download(parts, source).tolist() == [1] * 8 + [4] * 56
    parts.set_bytes(source, 5)
    parts.memory.fill(source, 6)
    assert (download(parts, source) == 6).all()


def test_a_wait_is_made_only_where_something_was_launched():
    parts = Parts()
    waits = lambda: parts.library.ask("dev_waits", ctypes.c_int)  # noqa: E731
    before = waits()
    tensor = upload(parts, np.zeros(8, np.uint8))
    parts.memory.copy_in(tensor, np.zeros(8, np.uint8).data)
    assert waits() == before
    parts.set_bytes(tensor, 1)
    parts.memory.copy_in(tensor, np.zeros(8, np.uint8).data)
    parts.memory.copy_in(tensor, np.zeros(8, np.uint8).data)
    assert waits() == before + 1
    parts.close()


@pytest.mark.parametrize("size", [64, POOLED + 1])
def test_a_free_follows_the_launch_before_it(parts, size):
    source, target = upload(parts, np.full(size, 5, np.uint8)), tensor_of(parts, size)
    parts.memory.copy(target, source)
    parts.memory.free(source.buffer)
    upload(parts, np.full(size, 9, np.uint8))
    assert (download(parts, target) == 5).all()


@pytest.mark.parametrize("size", [1, SEED - 1, 2 * SEED + 3])
def test_a_fill_ends_where_it_should(parts, size):
    whole = upload(parts, noise(size + 2))
    parts.memory.fill(whole.view((size,), offset=1), 0x5A)
    wanted = noise(size + 2)
    wanted[1:-1] = 0x5A
    assert np.array_equal(download(parts, whole), wanted)
    with pytest.raises(ChipError, match="must lie in 0"):
        parts.memory.fill(whole, 256)


def test_what_does_not_fit_is_refused_before_a_byte_moves(parts):
    tensor, wide = tensor_of(parts, 64), Tensor((2,), DType.INT32, (2,), buffer=Buffer(None, 99))
    gone, theirs = tensor_of(parts, 64), tensor_of(Parts(), 64)
    parts.memory.free(gone.buffer)
    host = np.zeros(63, np.uint8)
    for text, act in {
        "copy_in: 63 bytes on the host, 64 on the device": lambda: parts.memory.copy_in(
            tensor, host.data
        ),
        "copy: 64 bytes in the source, 9 on the device": lambda: parts.memory.copy(
            tensor.view((9,)), tensor
        ),
        "contiguous": lambda: parts.memory.fill(tensor.view((2,), (2,)), 1),
        "read-only": lambda: parts.memory.copy_out(tensor, memoryview(bytes(64))),
        "99 bytes was freed or is another chip's": lambda: parts.memory.fill(wide, 1),
        "64 bytes was freed or is": lambda: download(parts, gone),
        "64 bytes was freed or is another": lambda: parts.memory.free(theirs.buffer),
        "a size of -1 bytes": lambda: parts.memory.allocate(-1),
    }.items():
        with pytest.raises(ChipError, match=f"small, memory: invalid argument: .*{text}"):
            act()
    assert parts.memory.traffic() == Traffic(0, 0)
    parts.library.call("dev_free", theirs.buffer.handle.address)


def test_a_full_device_says_both_sizes_and_what_the_pool_keeps_is_given_back_first(parts):
    small = [tensor_of(parts, POOLED) for _ in range(5)]
    for tensor in small:
        parts.memory.free(tensor.buffer)
    assert parts.memory.statistics().cached == 5 * POOLED
    assert parts.memory.info().free == TOTAL
    whole = parts.memory.allocate(TOTAL)
    with pytest.raises(ChipError, match=r"asked for 2,097,152 bytes, 0 free: dev_alloc: DEV 2"):
        parts.memory.allocate(2 << 20)
    with pytest.raises(ChipError) as caught:
        parts.memory.allocate(1)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY and caught.value.code == 2
    parts.memory.free(whole)


def test_accounts_are_in_the_drivers_pages(parts):
    kept = [parts.memory.allocate(n) for n in (1, PAGE + 1, POOLED + 1)]
    info, said = parts.memory.info(), parts.memory.statistics()
    assert info.used == said.used == PAGE + 2 * PAGE + POOLED + PAGE
    assert info.source == "the device" and info.used + info.free == info.total == TOTAL
    assert said.asked == 1 + PAGE + 1 + POOLED + 1 and said.cached == 0
    assert said.fragmentation == pytest.approx(1 - said.asked / said.used)
    for buffer in kept:
        parts.memory.free(buffer)
    assert parts.memory.info().used == 0
    parts.memory.allocate(parts.memory.info().largest)


def test_one_block_may_be_bounded():
    parts = Parts(block_limit=4 << 20)
    assert parts.memory.info().largest == 4 << 20
    parts.memory.allocate(4 << 20)
    assert parts.memory.info().largest == 2 << 20  # the mean of what two parts have left
    parts.close()


def test_peers_are_named_and_sizes_compared():
    here, there = Parts(), Parts(device=1)
    source, target = upload(here, noise(64)), tensor_of(there, 64)
    here.set_bytes(source, 9)
    here.memory.copy_peer(target, source, 1)
    assert (download(there, target) == 9).all()
    for wrong in (
        lambda: here.memory.copy_peer(target, source, 0),
        lambda: here.memory.copy_peer(target.view((9,)), source, 1),
    ):
        with pytest.raises(ChipError, match="copy_peer of 64 bytes to device"):
            wrong()
    there.memory.free(target.buffer)
    with pytest.raises(ChipError, match="was freed"):
        here.memory.copy_peer(target, source, 1)
    here.close()
    there.close()


def test_traffic_counts_bytes_and_seconds(parts):
    download(parts, upload(parts, noise(100)).view((40,)))
    said = parts.memory.traffic()
    assert (said.bytes_in, said.bytes_out) == (100, 40)
    assert said.seconds_in > 0 and said.seconds_out > 0


def test_after_close_nothing_is_given():
    parts = Parts()
    tensor = tensor_of(parts, 9)
    parts.close()
    assert tensor.buffer.freed and parts.measure().free == TOTAL
    with pytest.raises(ChipError, match="closed"):
        parts.memory.allocate(1)
