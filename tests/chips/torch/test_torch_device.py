"""What torch's module of a device type tells, with doubles for devices that are not here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anychip.contract.errors import ChipError, ErrorKind
from anychip.torchbase.device import DeviceTimeout, TorchDevice
from anychip.torchbase.memory import TorchMemory
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
