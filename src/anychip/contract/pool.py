"""A pool by size class that a chip may put before its allocator.

Classes are powers of two in four steps (2**n times 1, 1.25, 1.5, 1.75), so at most a quarter of
a block is slack. A freed block waits in its class for the next request of that class; when the
device is full, waiting blocks are given back before an allocation fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from anychip.contract.errors import ChipError, ChipLayer, ErrorKind, invalid
from anychip.contract.memory import PoolStatistics
from anychip.contract.tensor import Buffer

SMALLEST = 256


def size_class(nbytes: int) -> int:
    """The block size that a request of `nbytes` is served from."""
    if nbytes <= SMALLEST:
        return SMALLEST
    step = 1 << max((nbytes - 1).bit_length() - 3, 0)
    return -(-nbytes // step) * step


class SizeClassPool:
    """Hands out buffers from blocks that `allocate` and `release` get and give back.

    Not thread-safe: memory is called from the thread that drives the queue. Release follows the
    queue's order, so a block may be reused at once by work queued later.
    """

    def __init__(
        self, chip: str, allocate: Callable[[int], object], release: Callable[[object, int], None]
    ) -> None:
        self._chip, self._allocate, self._release = chip, allocate, release
        self._waiting: dict[int, list[object]] = defaultdict(list)
        # id(buffer) -> block, class, the buffer (kept, so that its id stays its own)
        self._blocks: dict[int, tuple[object, int, Buffer]] = {}

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`. Raises ChipError (out of memory) after trimming."""
        size = size_class(nbytes)
        waiting = self._waiting[size]
        block = waiting.pop() if waiting else self.fresh(size)
        buffer = Buffer(block, nbytes)
        self._blocks[id(buffer)] = (block, size, buffer)
        return buffer

    def fresh(self, size: int) -> object:
        """A new block of exactly this size, not of the pool: for buffers too large for it. Raises
        ChipError (out of memory) after trimming."""
        try:
            return self._allocate(size)
        except ChipError as error:
            if error.fact.kind is not ErrorKind.OUT_OF_MEMORY or not self.trim():
                raise
        return self._allocate(size)

    def free(self, buffer: Buffer) -> None:
        """Keep the block for reuse. A second free is refused."""
        if buffer.freed or id(buffer) not in self._blocks:
            raise invalid(
                self._chip,
                ChipLayer.MEMORY,
                f"a buffer of {buffer.nbytes} bytes was freed twice or is not of this pool",
            )
        block, size, _ = self._blocks.pop(id(buffer))
        buffer.freed = True
        self._waiting[size].append(block)

    def trim(self) -> int:
        """Give every waiting block back; returns the bytes."""
        given = 0
        for size, blocks in self._waiting.items():
            while blocks:
                self._release(blocks.pop(), size)
                given += size
        return given

    def statistics(self) -> PoolStatistics:
        """Bytes handed out, waiting, asked for; and what share of the handed-out is slack."""
        used = sum(size for _, size, _ in self._blocks.values())
        asked = sum(b.nbytes for _, _, b in self._blocks.values())
        cached = sum(size * len(blocks) for size, blocks in self._waiting.items())
        return PoolStatistics(used, cached, asked, 1 - asked / used if used else 0.0)
