"""What torch's module of a device type tells, with doubles for devices that are not here."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.memory import PoolStatistics, Traffic
from anychip.contract.tensor import Tensor
from anychip.torchbase.device import DeviceTimeout, TorchDevice
from anychip.torchbase.experts import bytes_read, expert_mlp, route_experts
from anychip.torchbase.memory import TorchMemory, torch_memory
from anychip.torchbase.queue import Stream, TorchQueue


def device(is_host=False, **module) -> TorchDevice:
    """The host's device in the clothes of another one."""
    made = TorchDevice("double", "cpu")
    made._module, made.is_host = SimpleNamespace(**module), is_host
    return made


def test_the_drivers_numbers_count_what_torch_caches_as_free():
    made = device(
        mem_get_info=lambda _: (600, 1000),
        memory_reserved=lambda _: 300,
        memory_allocated=lambda _: 100,
    )
    info = TorchMemory(Stream(made), 0).info()
    assert (info.total, info.used, info.free, info.source) == (1000, 200, 800, "torch.cpu")


def test_a_limit_below_the_drivers_total_rules():
    memory = TorchMemory(Stream(device(mem_get_info=lambda _: (600, 1000))), 500)
    memory.allocate(100)
    info = memory.info()
    assert (info.total, info.used, info.free) == (500, 100, 400)
    assert info.source == "chip option memory"


def test_a_device_that_counts_its_own_allocations():
    made = device(recommended_max_memory=lambda: 1000, driver_allocated_memory=lambda: 300)
    assert made.memory() == (700, 1000)


def test_without_numbers_the_option_must_say_how_much_there_is():
    stream = Stream(device())
    with pytest.raises(ChipError, match="memory=SIZE"):
        TorchMemory(stream, 0).info()
    assert TorchMemory(stream, 500).info().total == 500


STATS = {
    "allocated_bytes.all.current": 400,
    "requested_bytes.all.current": 300,
    "reserved_bytes.all.current": 1000,
    "inactive_split_bytes.all.current": 250,
}


def test_the_caching_allocator_is_a_pool_and_lies_in_pieces():
    made = device(
        mem_get_info=lambda _: (600, 2000),
        memory_reserved=lambda _: 1000,
        memory_allocated=lambda _: 400,
        memory_stats=lambda _: STATS,
    )
    memory = torch_memory(Stream(made), 0)
    assert memory.statistics() == PoolStatistics(
        used=400, cached=600, asked=300, fragmentation=0.25
    )
    info = memory.info()
    assert (info.free, info.largest) == (1200, 950)


def test_an_allocator_that_holds_nothing_or_tells_less():
    empty = torch_memory(Stream(device(memory_stats=lambda _: {})), 500)
    assert empty.statistics() == PoolStatistics(0, 0, 0, 0.0)
    only = {"allocated_bytes.all.current": 400, "reserved_bytes.all.current": 500}
    told = torch_memory(Stream(device(memory_stats=lambda _: only)), 500).statistics()
    assert told == PoolStatistics(used=400, cached=100, asked=400, fragmentation=0.0)


class Clock:
    """An event that knows its moment on the device; 2 ms lie between two."""

    moments = itertools.count(step=2)

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = next(self.moments)

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, other: Clock) -> float:
        assert other.waited
        return float(other.at - self.at)


def test_copies_are_timed_by_the_devices_clock():
    memory = torch_memory(Stream(device(Event=Clock)), 500)
    x = Tensor((64,), DType.UINT8, buffer=memory.allocate(64))
    memory.copy_in(x, memoryview(bytes(64)))
    memory.copy_out(x, memoryview(bytearray(64)))
    assert memory.traffic() == Traffic(64, 64, 0.002, 0.002)


def test_what_operators_read_back_is_counted_where_something_crosses():
    for is_host, read in ((True, 0), (False, 2 * 8 * 4)):
        stream = Stream(device(is_host=is_host))
        stream.reads(bytes_read(expert_mlp, {"experts_count": 4}))
        assert torch_memory(stream, 500).traffic() == Traffic(0, read)
    assert bytes_read(route_experts, {}) == 0


class Event:
    """Never reached, or reached at the second look."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def record(self) -> None:
        self.recorded = True

    def query(self) -> bool:
        self.looks -= 1
        return self.recorded and self.looks <= 0


def test_a_wait_is_bounded_where_there_are_events():
    TorchQueue(Stream(device(Event=lambda: Event(2)))).synchronize(5.0)
    stream = Stream(device(Event=lambda: Event(1 << 60)))
    stream.launch("matmul", lambda: None)
    with pytest.raises(ChipError, match="matmul") as caught:
        TorchQueue(stream).synchronize(0.01)
    assert (caught.value.fact.kind, caught.value.fatal) == (ErrorKind.TIMEOUT, True)
    assert isinstance(caught.value.__cause__, DeviceTimeout)


def test_a_wait_without_events_or_timeout_synchronizes():
    calls = []
    device(synchronize=lambda: calls.append("all")).synchronize(1.0)
    device(synchronize=lambda: calls.append("all"), Event=None).synchronize(None)
    device(is_host=True, synchronize=lambda: calls.append("none")).synchronize(None)
    assert calls == ["all", "all"]


def test_memory_that_runs_out_inside_an_operator_is_typed():
    import torch

    def full():
        raise torch.OutOfMemoryError("tried to allocate 1 GiB")

    with pytest.raises(ChipError, match="'linear': tried") as caught:
        Stream(device()).launch("linear", full)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY and not caught.value.fatal
