"""The contract's communicator over a vendor's library of collectives with one context a rank.

Ranks meet at `tcp://host:port`: rank 0 listens there and hands the library's id to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import product
from typing import Protocol

import numpy as np

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind, invalid
from anychip.contract.meeting import hand_out
from anychip.contract.memory import Memory
from anychip.contract.optional import Communicator
from anychip.contract.tensor import Tensor
from anychip.sdkbase.dtypes import NUMPY
from anychip.sdkbase.stream import Stream

SCRATCH = 4096
"""Bytes for small proofs."""
MEETING = 60.0
"""Seconds in which all ranks must have come to the address."""


class Collectives(Protocol):
    """What a chip writes of the vendor's library; functions raise ChipError."""

    @property
    def name(self) -> str:
        """As in its file's name, without lib and .so."""

    @property
    def dtypes(self) -> Collection[DType]:
        """Those that it has."""

    @property
    def identity_bytes(self) -> int:
        """Bytes of an id, or more."""

    def identity(self) -> bytes:
        """A new id, on rank 0."""

    def enter(self, rank: int, world: int, identity: bytes) -> None:
        """Make this rank's context, once all ranks call it."""

    def all_reduce(
        self, address: int, count: int, dtype: DType, operation: str, queue: int
    ) -> None:
        """Put it on the vendor's queue, in place; operation: sum or max."""

    def all_gather(self, target: int, source: int, count: int, dtype: DType, queue: int) -> None:
        """Put it on the vendor's queue; count: elements of one rank's source."""


OPERATIONS = ("sum", "max")


class RankCommunicator(Communicator):
    """On the chip's queue. A dead rank shows at a wait, as late as the library notices.

    address: of a tensor of this device.
    """

    def __init__(
        self,
        library: Collectives,
        memory: Memory,
        address: Callable[[Tensor], int],
        stream: Stream,
    ) -> None:
        self._library, self._memory, self._stream = library, memory, stream
        self._address, self._world = address, 0

    def join(self, rank: int, world: int, address: str) -> None:
        """Then tries each dtype and operation: a library with other numbers lies silently."""
        if self._world or not 0 <= rank < world:
            raise self._refused(f"rank {rank} of {world} joins, {self._world} ranks joined before")
        identity = self._library.identity() if rank == 0 else bytes(self._library.identity_bytes)
        if world > 1:
            identity = self._met(rank, world, address, identity)
        scratch = self._memory.allocate(SCRATCH)
        try:
            self._stream.use()
            self._library.enter(rank, world, identity)
            for dtype, operation in product(self._library.dtypes, OPERATIONS):
                self._prove(Tensor((2,), dtype, buffer=scratch), rank, world, operation)
        except BaseException:
            self._memory.free(scratch)
            raise
        self._world, self._scratch = world, scratch

    def _met(self, rank: int, world: int, address: str, identity: bytes) -> bytes:
        text = f"rank {rank} of {world} at {address}: "
        try:
            return hand_out(rank, world, address, identity, MEETING)
        except ValueError as error:
            raise self._refused(str(error)) from error
        except TimeoutError as error:
            text += f"not all ranks came within {MEETING:g} s: {error}"
            raise self._failure(ErrorKind.TIMEOUT, text) from error
        except OSError as error:
            raise self._failure(ErrorKind.LOST, f"{text}{error}") from error

    def _prove(self, tensor: Tensor, rank: int, world: int, operation: str) -> None:
        whole = np.array([[r + 1, -r - 1] for r in range(world)])
        given = whole.astype(NUMPY[tensor.dtype])
        wanted = given.max(0) if operation == "max" else whole.sum(0).astype(given.dtype)
        got = given[rank].copy()
        self._memory.copy_in(tensor, memoryview(got.view(np.uint8)))
        self._reduce(self._address(tensor), tensor, operation)
        self._memory.copy_out(tensor, memoryview(got.view(np.uint8)))
        if got.tobytes() != wanted.tobytes():
            text = f"all_reduce ({operation}) of {tensor.dtype} gave {got.tolist()}, "
            text += (
                f"not {wanted.tolist()}: this lib{self._library.name} has other numbers than known"
            )
            raise self._failure(ErrorKind.VERSION, text)

    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        """Sum or max, in place."""
        address = self._argument(tensor)
        if operation not in OPERATIONS:
            raise self._refused(f"all_reduce by '{operation}'; known: {', '.join(OPERATIONS)}")
        if tensor.size:  # nothing on one rank is nothing on all
            self._reduce(address, tensor, operation)

    def _reduce(self, address: int, tensor: Tensor, operation: str) -> None:
        given = address, tensor.size, tensor.dtype, operation, self._stream.handle
        name = f"{self._library.name}_all_reduce"
        self._stream.put(name, lambda: self._library.all_reduce(*given))

    def all_gather(self, target: Tensor, source: Tensor) -> None:
        """The ranks' sources in rank order."""
        send, receive = self._argument(source), self._argument(target)
        shape = (self._world * (*source.shape, 1)[0], *source.shape[1:])
        if target.dtype != source.dtype or target.shape != shape:
            text = f"all_gather of {source.dtype} {source.shape} from {self._world} ranks"
            raise self._refused(f"{text} into {target.dtype} {target.shape}")
        if source.size:
            given = receive, send, source.size, source.dtype, self._stream.handle
            name = f"{self._library.name}_all_gather"
            self._stream.put(name, lambda: self._library.all_gather(*given))

    def barrier(self, timeout: float) -> None:
        """An all_reduce of one element, and a wait for it."""
        if not self._world:
            raise self._refused("a barrier before join")
        self.all_reduce(Tensor((1,), DType.INT32, buffer=self._scratch), "sum")
        self._stream.wait(timeout)

    def _argument(self, tensor: Tensor) -> int:
        known = self._library.dtypes
        if tensor.dtype not in known:
            text = f"{self._library.name.upper()} has no type for {tensor.dtype}"
            raise self._refused(f"{text}; it has {', '.join(known)}")
        if not self._world or not tensor.is_contiguous:
            why = "a tensor with gaps" if self._world else "before join"
            raise self._refused(f"a collective of {tensor.dtype} {tensor.shape}: {why}")
        return self._address(tensor)

    def _failure(self, kind: ErrorKind, text: str) -> ChipError:
        return ChipError(ErrorFact(ChipLayer.EXECUTION, kind, True, text), chip=self._stream.chip)

    def _refused(self, text: str) -> ChipError:
        return invalid(self._stream.chip, ChipLayer.EXECUTION, text)
