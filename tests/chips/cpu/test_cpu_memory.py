"""Memory: aligned, accounted for, strict about what it is given."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import CpuCalls, normal

from anychip.chips.cpu import memory as cpu_memory
from anychip.chips.cpu.memory import CpuMemory, HostStore
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.host import HostFacts, host_facts
from anychip.contract.memory import Traffic
from anychip.contract.tensor import Buffer, Tensor
from anychip.contract.weights import HostWeight, WeightUse


def tensor(memory, nbytes):
    return Tensor((nbytes,), DType.UINT8, buffer=memory.allocate(nbytes))


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4097])
def test_aligned_and_there_and_back(nbytes):
    memory = CpuMemory(HostStore(0))
    x = tensor(memory, nbytes)
    assert x.buffer.handle.address % 64 == 0
    source = bytearray(np.random.default_rng(1).bytes(nbytes))
    kept = bytes(source)
    memory.copy_in(x, memoryview(source))
    source[:] = bytes(nbytes)  # a source may be reused on return
    target = bytearray(nbytes)
    memory.copy_out(x, memoryview(target))
    assert bytes(target) == kept


def test_copies_are_counted_by_direction():
    memory = CpuMemory(HostStore(0))
    x = tensor(memory, 4096)
    assert memory.traffic() == Traffic(0, 0)
    for _ in range(2):
        memory.copy_in(x, memoryview(bytes(4096)))
    memory.copy_out(x, memoryview(bytearray(4096)))
    with pytest.raises(ChipError):
        memory.copy_in(x, memoryview(bytes(9)))
    said = memory.traffic()
    assert (said.bytes_in, said.bytes_out) == (8192, 4096)
    assert said.seconds_in > 0 and said.seconds_out > 0


def test_more_than_the_limit_is_out_of_memory():
    memory = CpuMemory(HostStore(1000))
    first = memory.allocate(600)
    with pytest.raises(ChipError, match="asked for 401 bytes, 400 free") as caught:
        memory.allocate(401)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY and not caught.value.fatal
    memory.free(first)
    memory.allocate(1000)
    assert memory.info().free == 0 and memory.info().source == "chip option memory"


def test_more_than_the_host_has_is_out_of_memory():
    with pytest.raises(ChipError, match="out of memory"):
        CpuMemory(HostStore(0)).allocate(host_facts().total * 2)


def test_info_counts_what_others_use_and_what_is_not_touched_yet(monkeypatch):
    facts = {"resident": 1000}
    monkeypatch.setattr(cpu_memory, "host_facts", lambda: HostFacts(10_000, 6_000, "test"))
    monkeypatch.setattr(cpu_memory, "resident", lambda: facts["resident"])
    memory = CpuMemory(HostStore(0))
    assert (memory.info().used, memory.info().free) == (4_000, 6_000)
    memory.allocate(2_500)  # nothing touched: the host still has it, nobody else may take it
    assert (memory.info().used, memory.info().free) == (6_500, 3_500)
    facts["resident"] += 2_000  # now the host's own number knows of most of it
    assert memory.info().free == 5_500


def test_many_small_blocks_need_one_look_at_the_host(monkeypatch):
    looks, now = [], [100.0]
    monkeypatch.setattr(cpu_memory.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        cpu_memory, "host_facts", lambda: looks.append(1) or HostFacts(10_000, 6_000, "test")
    )
    monkeypatch.setattr(cpu_memory, "resident", lambda: 1000)
    store = HostStore(0)
    for _ in range(60):
        store.take(100)
    with pytest.raises(ChipError, match="asked for 1 bytes, 0 free"):
        store.take(1)  # what was handed out counts at once
    assert len(looks) == 1
    now[0] += 2 * cpu_memory.LOOK_S
    with pytest.raises(ChipError, match="0 free"):
        store.take(1)
    assert len(looks) == 2
    assert store.info().free == 0 and len(looks) == 3, "who asks is told what is so now"


def test_double_and_foreign_frees_are_refused():
    memory = CpuMemory(HostStore(0))
    buffer = memory.allocate(8)
    foreign = Buffer(buffer.handle, 8)
    memory.free(buffer)
    for wrong in (buffer, Buffer("an id", 8), foreign, CpuMemory(HostStore(0)).allocate(8)):
        with pytest.raises(ChipError, match="freed twice or belongs to another"):
            memory.free(wrong)


def test_lengths_and_strides_must_fit():
    memory = CpuMemory(HostStore(0))
    x = tensor(memory, 8)
    with pytest.raises(ChipError, match="copy of 7 bytes and a tensor that is 8 bytes"):
        memory.copy_in(x, memoryview(bytes(7)))
    with pytest.raises(ChipError, match="copy of 9 bytes"):
        memory.copy_out(x, memoryview(bytearray(9)))
    with pytest.raises(ChipError, match="not contiguous"):
        memory.copy_in(x.view((4,), (2,)), memoryview(bytes(4)))
    with pytest.raises(ChipError, match="read-only"):
        memory.copy_out(x, memoryview(bytes(8)))
    memory.copy_in(x, memoryview(bytes(8)))
    memory.free(x.buffer)
    for copy in (memory.copy_in, memory.copy_out):
        with pytest.raises(ChipError, match="freed"):
            copy(x, memoryview(bytearray(8)))


def test_a_store_that_takes_a_block_back_leaves_no_way_to_it():
    store = HostStore(0)
    memory = CpuMemory(store)
    x = tensor(memory, 8)
    memory.copy_in(x, memoryview(bytes(8)))
    store.give(x.buffer)
    with pytest.raises(ChipError, match="freed"):
        memory.copy_in(x, memoryview(bytes(8)))


def test_weights_that_cannot_be_packed_are_refused(cpu):
    uses = frozenset({WeightUse.LINEAR})
    for formats, shapes, text in (
        (("q9_k",), ((4, 32),), "format 'q9_k'"),
        (("q8_0",), ((4, 33),), "33 columns of q8_0"),
        (("float32",) * 2, ((4, 32), (4, 64)), "32 and 64 columns"),
    ):
        with pytest.raises(ChipError, match=text):
            cpu.chip.weights.plan(formats, shapes, uses)
    short = HostWeight("float32", (4, 4), memoryview(bytes(63)))
    with pytest.raises(ChipError, match="63 bytes, not 64"):
        cpu.chip.weights.prepare((short,), uses)


def test_a_weight_that_does_not_fit_is_out_of_memory():
    calls = CpuCalls({"memory": "1K"})
    part = HostWeight("float32", (32, 32), memoryview(normal(1, 32, 32).view(np.uint8)))
    with pytest.raises(ChipError, match="out of memory"):
        calls.chip.weights.prepare((part,), frozenset({WeightUse.LINEAR}))
    calls.chip.close()


def test_a_view_is_the_memory_itself_and_no_copy():
    memory = CpuMemory(HostStore(0))
    x = tensor(memory, 8)
    memory.copy_in(x, memoryview(bytes(range(8))))
    view, before = memory.host_view(x), memory.traffic()
    assert bytes(view) == bytes(range(8))
    view[3] = 99
    assert memory.traffic() == before
    found = bytearray(8)
    memory.copy_out(x, memoryview(found))
    assert found[3] == 99
    with pytest.raises(ChipError, match="a view of a tensor that is not contiguous"):
        memory.host_view(x.view((2,), strides=(4,)))
    memory.free(x.buffer)
    with pytest.raises(ChipError, match="freed"):
        memory.host_view(x)
