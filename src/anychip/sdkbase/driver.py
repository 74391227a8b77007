"""What a chip writes of its vendor's runtime: one device, its queue and its memory."""

from __future__ import annotations

from typing import Protocol


class Driver(Protocol):
    """One device through the vendor's runtime; each function raises ChipError.

    Addresses and handles are plain integers. handle: the vendor's queue, made with the driver.
    number: what the runtime calls the device. queues_copies: whether `copy_within` only puts the
    copy on the queue; otherwise it is done on return, and the queue is waited for beforehand.
    All but `wait` run on the thread that drives the queue, with the device current there.
    """

    @property
    def handle(self) -> int:
        """The vendor's queue."""

    @property
    def number(self) -> int:
        """The device in the runtime's count."""

    @property
    def queues_copies(self) -> bool:
        """Whether a copy inside the device goes on the queue."""

    def use(self) -> None:
        """Make the device the current one of this thread, where the runtime has such a thing."""

    def wait(self) -> None:
        """Wait for the queue, on any thread; late errors of launches come out here."""

    def allocate(self, nbytes: int) -> int:
        """Address of new memory; `nbytes` is at least 1. A full device: kind out of memory."""

    def release(self, address: int) -> None:
        """Give memory back that no queued work uses."""

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        """Host to device; done with the host's memory on return. It need not wait by itself."""

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        """Device to host, done on return. It need not wait for the queue by itself."""

    def copy_within(self, target: int, source: int, nbytes: int) -> None:
        """Inside the device; see `queues_copies`."""

    def close(self) -> None:
        """End the queue, which is idle."""


class PeerDriver(Driver, Protocol):
    """A runtime that also copies between two devices of one process."""

    def copy_peer(self, number: int, target: int, source: int, nbytes: int) -> None:
        """To the device of that number; done on return."""
