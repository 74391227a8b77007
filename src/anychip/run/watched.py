"""Who is told of a step while it runs: of each operator, and of each copy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from anychip.contract.layer import empty_slots
from anychip.contract.memory import Memory, MemoryInfo
from anychip.contract.tensor import Buffer, Tensor
from anychip.plan import StepPlan
from anychip.run.programs import KeptCall


class StepWatch(Protocol):
    """Who is told what a runner does. Times are monotonic seconds. It must not raise.

    operators: whether they are to be run one by one.
    """

    @property
    def operators(self) -> bool:
        """Whether each operator of the next step is to be told."""

    def step(self, plan: StepPlan, begin: float, end: float) -> None:
        """A step was computed, or failed."""

    def operator(self, call: KeptCall, begin: float, end: float) -> None:
        """A call was launched and waited for."""

    def copy(self, nbytes: int, begin: float, end: float, *, into: bool) -> None:
        """Bytes were copied into the device, or out of it."""


@dataclass
class Watching:
    """Who watches a runner: nobody, mostly."""

    watch: StepWatch | None = None


class WatchedMemory(Memory):
    """A device's memory; whoever watches is told of the copies that go through it.

    inner: that memory, for what is not watched.
    """

    def __init__(self, memory: Memory, watching: Watching) -> None:
        self.inner, self._watching = memory, watching
        self.alignment, self.unified = memory.alignment, memory.unified

    def allocate(self, nbytes: int) -> Buffer:
        """As the device's."""
        return self.inner.allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        """As the device's."""
        self.inner.free(buffer)

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """As the device's; where it only queues the copy, the time is that of queueing."""
        watch = self._watching.watch
        if watch is None:
            self.inner.copy_in(target, source)
            return
        begun = time.monotonic()
        self.inner.copy_in(target, source)
        watch.copy(source.nbytes, begun, time.monotonic(), into=True)

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """As the device's; the time holds the wait for what was queued before."""
        watch = self._watching.watch
        if watch is None:
            self.inner.copy_out(source, target)
            return
        begun = time.monotonic()
        self.inner.copy_out(source, target)
        watch.copy(target.nbytes, begun, time.monotonic(), into=False)

    def info(self) -> MemoryInfo:
        """As the device's."""
        return self.inner.info()


def in_place(memory: Memory, tensor: Tensor) -> memoryview | None:
    """The bytes of a tensor where the host reads and writes them as they lie; None where they have
    to be copied. Raises ChipError."""
    inner = memory.inner if isinstance(memory, WatchedMemory) else memory
    return None if "host_view" in empty_slots(type(inner)) else inner.host_view(tensor)
