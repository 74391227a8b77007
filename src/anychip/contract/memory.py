"""Device memory: allocate, free, copy in, copy out, and the truth about what is left."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.layer import Layer, optional, required
from anychip.contract.tensor import Buffer, Tensor


@dataclass(frozen=True)
class MemoryInfo:
    """Bytes of device memory. `source` says where the numbers come from.

    largest: the largest single allocation that would succeed now.
    """

    total: int
    used: int
    free: int
    largest: int
    source: str


@dataclass(frozen=True)
class PoolStatistics:
    """What a pool holds, in bytes: handed out, kept for reuse, and lost to size classes.

    fragmentation: share of the handed-out bytes that nobody asked for, 0 to 1.
    """

    used: int
    cached: int
    asked: int
    fragmentation: float


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed between host and device since the device was opened, whoever asked:
    the core's copies and those that an operator makes on its own.

    seconds_in, seconds_out: time spent in those copies, waits before them left out; 0 where the
    chip does not measure it.
    """

    bytes_in: int
    bytes_out: int
    seconds_in: float = 0.0
    seconds_out: float = 0.0


class Memory(Layer, contract=True):
    """One device's memory, called from the thread that drives its queue.

    alignment: bytes that every allocation starts at a multiple of.
    unified: whether host and device share one physical memory.
    """

    alignment: int = 64
    unified: bool = False

    @required
    def allocate(self, nbytes: int) -> Buffer:
        """A new buffer. Size 0 gives a valid empty one. Raises ChipError (out of memory)."""
        raise NotImplementedError

    @required
    def free(self, buffer: Buffer) -> None:
        """Give it back, after the work queued so far. A second free is refused (invalid)."""
        raise NotImplementedError

    @required
    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """Host to device, in call order; `source` may be reused on return.

        Both must be contiguous and have the same number of bytes, otherwise: invalid.
        """
        raise NotImplementedError

    @required
    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Device to host; waits for the work queued before it. Same rules for lengths."""
        raise NotImplementedError

    @required
    def info(self) -> MemoryInfo:
        """Measured now, never host RAM in place of a device's."""
        raise NotImplementedError

    @optional
    def fill(self, target: Tensor, byte: int) -> None:
        """Set every byte of a contiguous tensor, in call order."""
        raise NotImplementedError

    @optional
    def copy(self, target: Tensor, source: Tensor) -> None:
        """Device to device, in call order; both contiguous and of the same number of bytes."""
        raise NotImplementedError

    @optional
    def copy_peer(self, target: Tensor, source: Tensor, device: int) -> None:
        """To a buffer of another device of the same chip, behind this device's queued work."""
        raise NotImplementedError

    @optional
    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Host memory that the device copies from and to without staging; lives until close."""
        raise NotImplementedError

    @optional
    def host_view(self, tensor: Tensor) -> memoryview:
        """The bytes of a contiguous tensor where they lie, format "B": the host reads and writes
        them in place, until the buffer is freed.

        Only for a chip that has done every launch and every copy when the call returns: nobody
        waits before they look.
        """
        raise NotImplementedError

    @optional
    def statistics(self) -> PoolStatistics:
        """Numbers of the pool, where the chip has one."""
        raise NotImplementedError

    @optional
    def traffic(self) -> Traffic:
        """What was copied so far; with it an operator that computes on the host shows itself."""
        raise NotImplementedError
