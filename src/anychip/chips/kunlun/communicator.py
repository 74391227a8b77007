"""Collectives over libbkcl (XCCL).

Ranks meet at `tcp://host:port`: rank 0 listens there and hands the library's id to the others.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from anychip.chips.kunlun.memory import CHIP, Stream, address_of, vendor_error
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind, invalid
from anychip.contract.meeting import hand_out
from anychip.contract.memory import Memory
from anychip.contract.optional import Communicator
from anychip.contract.table import rows
from anychip.contract.tensor import Tensor
from anychip.hostops import NUMPY_DTYPES

DTYPES = {
    DType.FLOAT32: "BKCL_FLOAT",
    DType.FLOAT16: "BKCL_FLOAT16",
    DType.BFLOAT16: "BKCL_BFLOAT16",
    DType.INT32: "BKCL_INT32",
    DType.UINT8: "BKCL_UINT8",
}
"""Not int8: BKCL has no such type, and as UINT8 its negative numbers would be the largest."""
OPERATIONS = {"sum": "BKCL_ADD", "max": "BKCL_MAX"}
FUNCTIONS = ("get_unique_id", "init_rank", "destroy_context", "all_reduce", "all_gather")
ID_BYTES, SCRATCH = 256, 4096
"""More than a unique id has in any version: its size is not public. Bytes for small proofs."""
MEETING = 60.0
"""Seconds in which all ranks must have come to the address."""


def _failure(kind: ErrorKind, text: str) -> ChipError:
    return ChipError(ErrorFact(ChipLayer.EXECUTION, kind, True, text), chip=CHIP)


def _refused(text: str) -> ChipError:
    return invalid(CHIP, ChipLayer.EXECUTION, text)


class Bkcl:
    """The library and, once joined, this rank's context. Symbols and numbers: abi_bkcl.tsv.

    bkcl.h is C++: a function goes by its plain name or by the mangled one. Raises ChipError.
    """

    def __init__(self, path: Path | str) -> None:
        table = rows(Path(__file__).parent / "kernels" / "abi_bkcl.tsv")
        symbols = {row["name"]: row["symbol"] for row in table if row["kind"] == "function"}
        enums = (row for row in table if row["kind"] == "enum")
        self.numbers = {row["name"]: int(row["declaration"]) for row in enums}
        self.context, self._calls = c_void_p(), {}
        try:
            library = ctypes.CDLL(str(path))
            for name in (f"bkcl_{function}" for function in FUNCTIONS):
                plain = hasattr(library, name)
                self._calls[name] = getattr(library, name if plain else symbols[name])
        except (OSError, AttributeError) as error:
            raise _failure(ErrorKind.VERSION, str(error)) from error

    def call(self, name: str, *arguments: Any) -> None:
        """A status that is not 0 is raised; the library has no text for it."""
        status = self._calls[name](*arguments)
        if status:
            raise vendor_error("BKCL", status, name)

    def close(self) -> None:
        """Leave the other ranks; a second time does nothing."""
        context, self.context = self.context, c_void_p()
        if context:
            self.call("bkcl_destroy_context", context)


class KunlunCommunicator(Communicator):
    """On the chip's queue. A dead rank shows at the next wait, after BKCL_TIMEOUT seconds."""

    def __init__(self, bkcl: Bkcl, memory: Memory, stream: Stream) -> None:
        self._bkcl, self._memory, self._stream = bkcl, memory, stream
        self._world = 0

    def join(self, rank: int, world: int, address: str) -> None:
        """Then tries each dtype: the numbers of bkcl.h are guesses, wrong ones lie silently."""
        if self._world or not 0 <= rank < world:
            raise _refused(f"rank {rank} of {world} joins, {self._world} ranks joined before")
        identity = (c_char * ID_BYTES)()
        if rank == 0:
            self._bkcl.call("bkcl_get_unique_id", identity)
        if world > 1:
            identity.raw = _met(rank, world, address, identity.raw)
        self._stream.use()
        context = ctypes.byref(self._bkcl.context)
        self._bkcl.call("bkcl_init_rank", context, c_int(rank), c_int(world), identity)
        self._world, self._scratch = world, self._memory.allocate(SCRATCH)
        for dtype in DTYPES:
            for operation in OPERATIONS:
                self._prove(rank, dtype, operation)

    def _prove(self, rank: int, dtype: DType, operation: str) -> None:
        kind = NUMPY_DTYPES[dtype]
        whole = np.array([[r + 1, -r - 1] for r in range(self._world)])
        given = whole.astype(kind)
        wanted = given.max(0) if operation == "max" else whole.sum(0).astype(kind)
        tensor, got = Tensor((2,), dtype, buffer=self._scratch), given[rank].copy()
        self._memory.copy_in(tensor, memoryview(got.view(np.uint8)))
        self.all_reduce(tensor, operation)
        self._memory.copy_out(tensor, memoryview(got.view(np.uint8)))
        if got.tobytes() != wanted.tobytes():
            text = f"all_reduce ({operation}) of {dtype} gave {got.tolist()}, not {wanted.tolist()}"
            raise _failure(ErrorKind.VERSION, f"{text}: this libbkcl has other numbers than known")

    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        """Sum or max, in place."""
        address, dtype = self._argument(tensor), self._dtype(tensor)
        if operation not in OPERATIONS:
            raise _refused(f"all_reduce by '{operation}'; known: {', '.join(OPERATIONS)}")
        by = c_int(self._bkcl.numbers[OPERATIONS[operation]])
        self._put("bkcl_all_reduce", tensor, address, address, c_size_t(tensor.size), dtype, by)

    def all_gather(self, target: Tensor, source: Tensor) -> None:
        """The ranks' sources in rank order."""
        send, receive = self._argument(source), self._argument(target)
        shape = (self._world * (*source.shape, 1)[0], *source.shape[1:])
        if target.dtype != source.dtype or target.shape != shape:
            text = f"all_gather of {source.dtype} {source.shape} from {self._world} ranks"
            raise _refused(f"{text} into {target.dtype} {target.shape}")
        count, dtype = c_size_t(source.size), self._dtype(source)
        self._put("bkcl_all_gather", source, send, count, receive, dtype)

    def barrier(self, timeout: float) -> None:
        """BKCL has none: an all_reduce of one element, and a wait for it."""
        if not self._world:
            raise _refused("a barrier before join")
        self.all_reduce(Tensor((1,), DType.INT32, buffer=self._scratch), "sum")
        self._stream.wait(timeout)

    def _dtype(self, tensor: Tensor) -> c_int:
        return c_int(self._bkcl.numbers[DTYPES[tensor.dtype]])

    def _argument(self, tensor: Tensor) -> c_void_p:
        if tensor.dtype not in DTYPES:
            raise _refused(f"BKCL has no type for {tensor.dtype}; it has {', '.join(DTYPES)}")
        if not self._world or not tensor.is_contiguous:
            why = "a tensor with gaps" if self._world else "before join"
            raise _refused(f"a collective of {tensor.dtype} {tensor.shape}: {why}")
        return c_void_p(address_of(tensor))

    def _put(self, name: str, tensor: Tensor, *arguments: Any) -> None:
        if tensor.size:  # nothing on one rank is nothing on all
            self._stream.use()
            handle = c_void_p(self._stream.handle)
            self._bkcl.call(name, self._bkcl.context, *arguments, handle)
            self._stream.launched(name)


def _met(rank: int, world: int, address: str, identity: bytes) -> bytes:
    text = f"rank {rank} of {world} at {address}: "
    try:
        return hand_out(rank, world, address, identity, MEETING)
    except ValueError as error:
        raise _refused(str(error)) from error
    except TimeoutError as error:
        text += f"not all ranks came within {MEETING:g} s: {error}"
        raise _failure(ErrorKind.TIMEOUT, text) from error
    except OSError as error:
        raise _failure(ErrorKind.LOST, f"{text}{error}") from error
