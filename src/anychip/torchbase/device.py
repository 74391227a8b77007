"""A torch device: its module (torch.<type>), its waits and its memory numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from anychip.contract.errors import ContractError
from anychip.contract.memory import PoolStatistics

POLL = 0.0005
"""Seconds between two looks at an event."""


class DeviceTimeout(Exception):
    """The device did not finish its queued work in time."""


class TorchDevice:
    """One device, by its torch name ("cuda:1"). chip: whose errors are raised."""

    def __init__(self, chip: str, name: str) -> None:
        self.chip, self.name = chip, name
        try:
            self.torch = torch.device(name)
            torch.empty(0, device=self.torch)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            first = str(error).splitlines()[0]
            text = f"torch {torch.__version__} has no device '{name}': {first}"
            raise ContractError(f"chip '{chip}': {text}") from error
        host = torch.frombuffer(bytearray(1), dtype=torch.uint8)
        self.is_host: bool = self.torch.type == host.device.type
        self._module: Any = getattr(torch, self.torch.type, None)

    def memory(self) -> tuple[int, int] | None:
        """(free, total) bytes as its driver tells, with what torch keeps cached counted as free.

        None where torch has no numbers for this type of device.
        """
        if self._has("mem_get_info"):
            free, total = self._module.mem_get_info(self.torch)
            return int(free) + self._cached(), int(total)
        if self._has("recommended_max_memory") and self._has("driver_allocated_memory"):
            total = int(self._module.recommended_max_memory())
            return max(total - int(self._module.driver_allocated_memory()), 0), total
        return None

    def _cached(self) -> int:
        if not (self._has("memory_reserved") and self._has("memory_allocated")):
            return 0
        reserved = int(self._module.memory_reserved(self.torch))
        return reserved - int(self._module.memory_allocated(self.torch))

    @property
    def has_pool(self) -> bool:
        """Whether torch keeps freed blocks of this device for reuse, and tells of them."""
        return self._has("memory_stats")

    def pool(self) -> PoolStatistics:
        """What torch's caching allocator holds of the device. asked: what blocks were asked for,
        where torch tells; else what they have."""
        told = self._module.memory_stats(self.torch)
        used = int(told.get("allocated_bytes.all.current", 0))
        asked = int(told.get("requested_bytes.all.current", used))
        cached = int(told.get("reserved_bytes.all.current", used)) - used
        return PoolStatistics(used, cached, asked, 1 - asked / used if used else 0.0)

    def in_pieces(self) -> int:
        """Bytes that are free beside blocks in use of the same segment: torch gives whole segments
        back, so no single allocation gets these and others."""
        if not self.has_pool:
            return 0
        return int(self._module.memory_stats(self.torch).get("inactive_split_bytes.all.current", 0))

    def timed(self, copy: Callable[[], object]) -> float:
        """Run a copy that is done on return; its seconds, by the device's clock where there is one,
        so that the work queued before it is left out."""
        if self.is_host or not self._has("Event"):
            began = time.perf_counter()
            copy()
            return time.perf_counter() - began
        first, last = (self._module.Event(enable_timing=True) for _ in range(2))
        first.record()
        copy()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def synchronize(self, timeout: float | None) -> None:
        """Wait for the queued work. Raises DeviceTimeout where events can be looked at."""
        if self.is_host:
            return
        if timeout is not None and self._has("Event"):
            self._poll(timeout)
        elif self._has("synchronize"):
            self._module.synchronize()

    def _poll(self, timeout: float) -> None:
        event = self._module.Event()
        event.record()
        end = time.monotonic() + timeout
        while not event.query():
            if time.monotonic() > end:
                raise DeviceTimeout(f"no end of the queued work within {timeout:g} s")
            time.sleep(POLL)

    def _has(self, name: str) -> bool:
        return hasattr(self._module, name)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch says that memory ran out; the host's allocator has no type for it."""
    typed = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    return isinstance(error, typed) or "can't allocate memory" in str(error)
