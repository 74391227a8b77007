"""Optional parts of a chip. Left out, the slot is empty, and `anychip chips -v` shows it so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anychip.contract.layer import Layer, required
from anychip.contract.memory import MemoryInfo
from anychip.contract.operators import Launch
from anychip.contract.tensor import Tensor


@dataclass(frozen=True)
class Reading:
    """One telemetry sample; None where the device does not tell.

    utilization: 0 to 1. temperature: degrees Celsius. power: watts.
    """

    memory: MemoryInfo
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None


class Telemetry(Layer, contract=True):
    """Reads the device's own counters; never host RAM for a device's.

    The engine calls it from a thread of its own while the queue's thread works, one call at a time.
    """

    @required
    def read(self) -> Reading:
        """One sample now."""
        raise NotImplementedError


class Communicator(Layer, contract=True):
    """Collectives between the ranks of one model, in queue order."""

    @required
    def join(self, rank: int, world: int, address: str) -> None:
        """Meet the other ranks. Raises ChipError (timeout, lost)."""
        raise NotImplementedError

    @required
    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        """In place; operation: sum or max."""
        raise NotImplementedError

    @required
    def all_gather(self, target: Tensor, source: Tensor) -> None:
        """Each rank's `source` along the first dimension of `target`."""
        raise NotImplementedError

    @required
    def barrier(self, timeout: float) -> None:
        """Wait for all ranks, seconds."""
        raise NotImplementedError


class Capture(Layer, contract=True):
    """Turns a list of prepared launches into one."""

    @required
    def capture(self, launches: Sequence[Launch]) -> Launch:
        """One launch that does what these do in order, reading the same memory."""
        raise NotImplementedError
