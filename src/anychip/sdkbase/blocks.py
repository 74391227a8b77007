"""Device memory handed out: small blocks from a pool by size class, large ones exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from anychip.contract.errors import ChipError, ChipLayer, ErrorKind, invalid
from anychip.contract.memory import MemoryInfo, PoolStatistics
from anychip.contract.pool import SizeClassPool, size_class
from anychip.contract.tensor import Buffer, Tensor
from anychip.sdkbase.stream import Stream


class Block(NamedTuple):
    """A buffer's handle. device: its index in the contract. number: the runtime's for it."""

    address: int
    device: int
    number: int


class Measured(NamedTuple):
    """Bytes of the card, whoever holds them, and who said so."""

    total: int
    free: int
    source: str


@dataclass(frozen=True)
class Granularity:
    """How the driver hands out memory, in bytes.

    page: it rounds an allocation up to a multiple. pooled: blocks up to this size wait for reuse,
    larger ones are exact and go back to the device. block_limit: what one allocation cannot pass,
    0 for none.
    """

    page: int
    pooled: int = 2 << 20
    block_limit: int = 0

    def pages(self, nbytes: int) -> int:
        """Bytes that the driver takes for an allocation."""
        return -(-nbytes // self.page) * self.page

    def held(self, sizes: Iterable[int]) -> int:
        """Bytes of the card behind buffers of these sizes: of the size class where pooled."""
        return sum(self.pages(size_class(n) if n <= self.pooled else n) for n in sizes)

    def largest(self, total: int, free: int) -> int:
        """Bytes that one allocation can have; up to `pooled`, a size class needs slack."""
        most = free // self.page * self.page if free > self.pooled else free * 4 // 5
        if not self.block_limit:
            return most
        parts = -(-total // self.block_limit)  # one of them has at least the mean of what is free
        return min(most, self.block_limit, free // parts // self.page * self.page)


def stranger(chip: str, buffer: Buffer) -> ChipError:
    """A buffer that cannot be used here."""
    text = f"a buffer of {buffer.nbytes:,} bytes was freed or is another chip's"
    return invalid(chip, ChipLayer.MEMORY, text)


class Blocks:
    """The blocks of one device, in the queue's order, from the thread that drives the queue.

    device: the index in the contract. measure: asked for each `info`.
    """

    def __init__(
        self, stream: Stream, device: int, measure: Callable[[], Measured], grain: Granularity
    ) -> None:
        self._stream, self._device, self._measure, self._grain = stream, device, measure, grain
        self._pool = SizeClassPool(stream.chip, self._take, self._give)
        self._lent: dict[int, Buffer] = {}
        self._taken, self._closed = 0, False

    def allocate(self, nbytes: int) -> Buffer:
        """An empty buffer has a block too: runtimes give none of size 0. Raises ChipError."""
        if nbytes < 0 or self._closed:
            text = "the chip is closed" if self._closed else f"a size of {nbytes} bytes"
            raise invalid(self._stream.chip, ChipLayer.MEMORY, text)
        exact = nbytes > self._grain.pooled
        pool = self._pool
        buffer = Buffer(pool.fresh(nbytes), nbytes) if exact else pool.allocate(nbytes)
        self._lent[id(buffer)] = buffer
        return buffer

    def _take(self, nbytes: int) -> Block:
        self._stream.use()
        try:
            address = self._stream.driver.allocate(nbytes)
        except ChipError as error:
            if error.fact.kind is not ErrorKind.OUT_OF_MEMORY:
                raise
            text = f"asked for {nbytes:,} bytes, {self.info().free:,} free: {error.fact.text}"
            fact = replace(error.fact, text=text)
            raise ChipError(fact, chip=error.chip, code=error.code) from error
        self._taken += self._grain.pages(nbytes)
        return Block(address, self._device, self._stream.driver.number)

    def _give(self, block: Any, nbytes: int) -> None:
        self._stream.settle()
        self._stream.driver.release(block.address)
        self._taken -= self._grain.pages(nbytes)

    def free(self, buffer: Buffer) -> None:
        """A pooled block is reused in the queue's order; a larger one waits for the queue."""
        self._check(buffer)
        if buffer.nbytes > self._grain.pooled:
            self._give(buffer.handle, buffer.nbytes)
            buffer.freed = True
        else:
            self._pool.free(buffer)
        del self._lent[id(buffer)]

    def _check(self, buffer: Buffer) -> None:
        if buffer.freed or self._lent.get(id(buffer)) is not buffer:
            raise stranger(self._stream.chip, buffer)

    def address(self, tensor: Tensor) -> int:
        """Device address of the first element of a tensor of ours. Raises ChipError (invalid)."""
        self._check(tensor.buffer)
        return int(tensor.buffer.handle.address) + tensor.offset

    def info(self) -> MemoryInfo:
        """The card's, whoever holds it; what the pool keeps counts as free."""
        total, free, source = self._measure()
        lent = list(self._lent.values())  # telemetry asks from a thread of its own
        kept = self._taken - self._grain.held(b.nbytes for b in lent)
        free = min(free + kept, total)
        return MemoryInfo(total, total - free, free, self._grain.largest(total, free), source)

    def statistics(self) -> PoolStatistics:
        """In whole pages of the card, beside what was asked for."""
        sizes = [b.nbytes for b in self._lent.values()]
        used, asked = self._grain.held(sizes), sum(sizes)
        return PoolStatistics(used, self._taken - used, asked, 1 - asked / used if used else 0.0)

    def close(self) -> None:
        """Give all back where the queue is sound; every buffer becomes invalid."""
        sound, self._closed = self._stream.sound(), True
        for buffer in list(self._lent.values()):
            if sound:
                self.free(buffer)
            buffer.freed = True
        self._lent.clear()
        if sound:
            self._pool.trim()
