"""Copies, allocations and accounts on a card of the simulated runtime."""

from collections.abc import Iterator
from pathlib import Path

import kunlun_sim
import numpy as np
import pytest
from kunlun_sim import MIB, PAGE, Parts
from sim_trees import SimTree

from anychip.chips.kunlun import memory
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.memory import Traffic
from anychip.contract.tensor import Buffer, Tensor


@pytest.fixture
def parts(sdk: SimTree, kernels: Path) -> Iterator[Parts]:
    opened = Parts(sdk, kernels)
    yield opened
    opened.close()


def refused(text: str = "", kind: ErrorKind = ErrorKind.INVALID):
    return pytest.raises(ChipError, match=f"{kind.value}.*{text}")


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [1, 63, 4097, PAGE, 2 * MIB, 2 * MIB + 1, 5 * MIB])
def test_bytes_come_back_as_they_were_sent(parts, size):
    content = noise(size)
    assert np.array_equal(parts.download(parts.upload(content)), content)


def test_a_host_access_to_the_card_would_fault(parts):
    tensor = parts.upload(noise(64))
    with open("/proc/self/maps") as maps:
        spans = [line.split() for line in maps]
    address = parts.blocks.address(tensor)
    inside = [
        rights
        for span, rights, *_ in spans
        if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)
    ]
    assert inside == ["---p"]


def test_lengths_are_compared_in_bytes_and_both_are_named(parts):
    tensor, host = parts.upload(noise(64)), np.zeros(63, np.uint8)
    with refused("copy_in: 63 bytes on the host, 64 on the device"):
        parts.memory.copy_in(tensor, host.data)
    with refused("copy_out: 63 bytes on the host, 64 on the device"):
        parts.memory.copy_out(tensor, host.data)
    with refused("copy: 64 bytes in the source, 16 on the device"):
        parts.memory.copy(tensor.view((16,)), tensor)
    words = Tensor((64,), DType.INT32, buffer=parts.memory.allocate(256))
    with refused("copy_in: 64 bytes on the host, 256 on the device"):
        parts.memory.copy_in(words, np.zeros(64, np.uint8).data)
    parts.memory.copy_in(words, np.zeros((4, 16), np.int32).data)


def test_gaps_and_read_only_targets_are_refused(parts):
    wide = Tensor((2, 2), DType.FLOAT32, (3, 1), buffer=parts.memory.allocate(64))
    for act in (
        lambda: parts.memory.copy_in(wide, np.zeros((2, 2), np.float32).data),
        lambda: parts.memory.copy_in(wide.view((2, 2)), np.zeros((2, 4), np.float32)[:, ::2].data),
        lambda: parts.memory.fill(wide, 0),
        lambda: parts.memory.copy(wide, wide.view((2, 2))),
        lambda: parts.memory.copy_out(wide.view((4,)), memoryview(bytes(16))),
    ):
        with refused():
            act()
    assert parts.memory.traffic() == Traffic(0, 0)


def test_freed_and_foreign_buffers_are_refused(parts, sdk, kernels):
    stranger = Parts(sdk, kernels, card=1)
    theirs = stranger.upload(noise(16))
    gone = parts.upload(noise(16))
    parts.memory.free(gone.buffer)
    host = np.zeros(16, np.uint8)
    for tensor in (gone, theirs, Tensor((16,), DType.UINT8, buffer=Buffer(object(), 16))):
        with refused("was freed or is another chip's"):
            parts.memory.free(tensor.buffer)
        with refused("was freed or is another chip's"):
            parts.memory.copy_out(tensor, host.data)
    with refused("was freed"):
        parts.blocks.address(gone)
    stranger.close()


def test_views_end_inside_their_buffer(parts):
    tensor = parts.upload(noise(16))
    with pytest.raises(ValueError, match="past its buffer"):
        tensor.view((8,), offset=9)
    assert parts.blocks.address(tensor.view((7,), offset=9)) == parts.blocks.address(tensor) + 9


def test_empty_buffers_need_no_case_of_their_own(parts):
    empty = parts.bytes(0)
    parts.memory.copy_in(empty, memoryview(b""))
    parts.memory.fill(empty, 1)
    parts.memory.copy(empty, empty.view((0,)))
    assert parts.download(empty).size == 0
    parts.memory.free(empty.buffer)
    with refused("a size of -1"):
        parts.memory.allocate(-1)


def test_one_byte_too_many_is_told_with_both_sizes_and_everything_goes_on(parts):
    total = parts.memory.info().total
    with refused(f"asked for {total + 1:,} bytes", ErrorKind.OUT_OF_MEMORY) as caught:
        parts.memory.allocate(total + 1)
    assert caught.value.code == 705 and not caught.value.fatal
    assert f"{total:,} free" in str(caught.value) and "XRE 705" in str(caught.value)
    content = noise(100)
    assert np.array_equal(parts.download(parts.upload(content)), content)


def test_what_the_pool_keeps_is_given_back_before_an_allocation_fails(parts):
    small = [parts.bytes(PAGE) for _ in range(8)]
    for tensor in small:
        parts.memory.free(tensor.buffer)
    assert parts.memory.statistics().cached == 8 * PAGE
    total = parts.memory.info().total
    whole = parts.memory.allocate(total)  # fits only where nothing is kept
    assert parts.memory.info().free == 0 and parts.memory.statistics().cached == 0
    parts.memory.free(whole)


def test_info_is_the_cards_and_says_so(parts):
    start = parts.memory.info()
    assert start.total == 96 << 30 and start.used == 0 and start.source == "XPUML"
    assert start.free == start.largest == start.total
    small, large = parts.bytes(100), parts.bytes(3 * MIB + 1)
    held = parts.memory.info()
    assert held.used == PAGE + 3 * MIB + PAGE  # whole pages
    parts.memory.free(small.buffer)
    parts.memory.free(large.buffer)
    assert parts.memory.info() == start  # what the pool keeps is free


def test_largest_is_really_to_be_had(parts):
    kept = parts.bytes(5 * MIB)
    largest = parts.memory.info().largest
    whole = parts.memory.allocate(largest)
    with refused(kind=ErrorKind.OUT_OF_MEMORY):
        parts.memory.allocate(3 * MIB)
    parts.memory.free(whole)
    assert parts.download(kept).size == 5 * MIB


def test_statistics_count_pages_beside_what_was_asked_for(parts):
    kept = [parts.memory.allocate(size) for size in (1, PAGE, 3 * MIB)]
    said = parts.memory.statistics()
    assert (said.used, said.asked, said.cached) == (2 * PAGE + 3 * MIB, 1 + PAGE + 3 * MIB, 0)
    assert said.fragmentation == pytest.approx(1 - said.asked / said.used)
    parts.memory.free(kept[0])
    parts.memory.free(kept[2])  # too large for the pool
    said = parts.memory.statistics()
    assert (said.used, said.asked, said.cached) == (PAGE, PAGE, PAGE)


def test_a_freed_block_is_reused(parts):
    first = parts.bytes(1000)
    address = parts.blocks.address(first)
    parts.memory.free(first.buffer)
    assert parts.blocks.address(parts.bytes(1001)) == address


def test_traffic_counts_what_crossed_and_how_long(parts):
    tensor = parts.upload(noise(4097))
    parts.download(tensor.view((1000,)))
    parts.memory.copy(tensor.view((7,)), tensor.view((7,), offset=7))
    said = parts.memory.traffic()
    assert (said.bytes_in, said.bytes_out) == (4097, 1000)
    assert said.seconds_in > 0 and said.seconds_out > 0
    parts.queue.synchronize(None)
    assert parts.memory.traffic() == said


@pytest.mark.parametrize("size", [1, 4097, MIB, MIB + 1, 5 * MIB + 3])
def test_fill_ends_where_it_should(parts, size):
    whole = parts.upload(noise(size + 128))
    parts.memory.fill(whole.view((size,), offset=64), 0x5A)
    wanted = noise(size + 128)
    wanted[64 : 64 + size] = 0x5A
    assert np.array_equal(parts.download(whole), wanted)
    for byte in (-1, 256):
        with refused("must lie in 0 .. 255"):
            parts.memory.fill(whole, byte)


@pytest.mark.parametrize("name", ["", "xpu_memcpy_async"])
def test_copy_keeps_the_order_with_and_without_the_newer_call(parts, name):
    parts.xre.missing += [name] if name else []
    source, target = parts.upload(noise(5000)), parts.bytes(5000)
    parts.memory.copy(target, source)
    parts.memory.copy_in(source, np.zeros(5000, np.uint8).data)
    assert np.array_equal(parts.download(target), noise(5000))


def test_copy_peer_goes_to_the_card_that_was_named(parts, sdk, kernels):
    peer = Parts(sdk, kernels, card=1)
    source, target = parts.upload(noise(5000)), peer.bytes(5000)
    parts.set_bytes(source, 9, milliseconds=20)
    parts.memory.copy_peer(target, source, 1)
    assert (peer.download(target) == 9).all()
    for wrong in (
        lambda: parts.memory.copy_peer(target, source, 2),
        lambda: parts.memory.copy_peer(target.view((9,)), source, 1),
    ):
        with refused("copy_peer of 5,000 bytes"):
            wrong()
    peer.close()


def test_two_cards_on_one_thread_keep_apart(parts, sdk, kernels):
    other = Parts(sdk, kernels, card=1)
    mine, theirs = parts.upload(noise(10)), other.upload(noise(11))
    again = parts.upload(noise(12))
    assert (parts.xpuml.memory(0)[2], parts.xpuml.memory(1)[2]) == (2 * PAGE, PAGE)
    assert np.array_equal(other.download(theirs), noise(11))
    assert np.array_equal(parts.download(again), noise(12))
    assert mine.buffer.handle.device == 0 and theirs.buffer.handle.device == 1
    other.close()


def test_close_gives_every_byte_back_and_refuses_what_comes_later(sdk, kernels):
    parts = Parts(sdk, kernels)
    tensor, _ = parts.upload(noise(100)), parts.bytes(5 * MIB)
    parts.memory.free(parts.bytes(77).buffer)
    assert used_by_all(sdk) >= 5 * MIB
    parts.blocks.close()
    assert used_by_all(sdk) == 0
    with refused("closed"):
        parts.memory.allocate(1)
    with refused("freed"):
        parts.download(tensor)
    parts.stream.close()


def used_by_all(sdk: SimTree) -> int:
    """What another process reads of card 0."""
    columns = sdk.smi("-m").splitlines()[0].split()
    return int(columns[17]) * MIB


def test_a_killed_process_leaves_nothing_behind(sdk, kernels):
    body = "kept = parts.bytes(64 << 20)\nprint('there', flush=True)\nsys.stdin.read()"
    child = kunlun_sim.start(sdk, kernels, body)
    assert child.stdout.readline() == "there\n"
    assert used_by_all(sdk) == 64 * MIB
    child.kill()
    child.wait()
    assert used_by_all(sdk) == 0


def test_a_full_card_is_told_where_the_runtime_says_so_out_of_turn(sdk, kernels):
    body = "kept = parts.bytes(10)\nprint(told(lambda: parts.bytes(3 << 20)))\nparts.bytes(10)"
    out = kunlun_sim.ended(kunlun_sim.start(sdk, kernels, body, faults="oom@2"))
    assert "asked for 3,145,728 bytes" in out and "XRE 705 (NOMEM)" in out


def test_older_cards_tell_what_one_block_can_hold(sdk, kernels):
    body = """
info = parts.memory.info()
print(info.total, info.largest)
held = [parts.memory.allocate(info.largest)]
print(parts.memory.info().largest < info.largest)
"""
    out = kunlun_sim.ended(kunlun_sim.start(sdk, kernels, body, limit=4 << 30))
    assert out.split() == [str(96 << 30), str(4 << 30), "True"]


def test_the_declared_calls_are_those_of_the_table():
    letters = {"int": "i", "uint64_t": "u", "XPUDeviceAttr": "i", "XPUMemoryKind": "i"}
    letters |= {"XPUMemcpyKind": "i"}
    table = Path(memory.__file__).parent / "kernels" / "abi_runtime.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    known = {row[1]: row[3] for row in rows if row[0] == "function"}
    for name, types in memory.XRE.functions.items():
        declared = known[name].split("(", 1)[1].rsplit(")", 1)[0].split(",")
        words = [parameter.split("=")[0].replace("const ", "").split() for parameter in declared]
        found = "".join(
            "p" if "*" in "".join(word) or word[0] == "XPUStream" else letters[word[0]]
            for word in words
        )
        assert found == types, f"{name}: {known[name]}"
