"""Collectives over libbkcl (XCCL), for `sdkbase`'s communicator."""

from __future__ import annotations

import ctypes
from pathlib import Path

from anychip.chips.kunlun.memory import ERRORS, KERNELS
from anychip.contract.dtype import DType
from anychip.sdkbase.library import Interface, VendorLibrary, declared
from anychip.sdkbase.table import rows

DTYPES = {
    DType.FLOAT32: "BKCL_FLOAT",
    DType.FLOAT16: "BKCL_FLOAT16",
    DType.BFLOAT16: "BKCL_BFLOAT16",
    DType.INT32: "BKCL_INT32",
    DType.UINT8: "BKCL_UINT8",
}
"""Not int8: BKCL has no such type, and as UINT8 its negative numbers would be the largest."""
OPERATIONS = {"sum": "BKCL_ADD", "max": "BKCL_MAX"}
FUNCTIONS = declared(
    "bkcl_get_unique_id:p bkcl_init_rank:piip bkcl_destroy_context:p bkcl_all_reduce:pppziip "
    "bkcl_all_gather:ppzpip"
)
ID_BYTES = 256
"""More than a unique id has in any version: its size is not public."""


class Bkcl(VendorLibrary):
    """The library and, once entered, this rank's context; see `sdkbase.communicator.Collectives`.
    Raises ChipError.

    Its symbols and numbers: abi_bkcl.tsv. bkcl.h is C++: a function goes by its plain name or by
    the mangled one. A dead rank shows at a wait, after BKCL_TIMEOUT seconds.
    """

    name, dtypes, identity_bytes = "bkcl", tuple(DTYPES), ID_BYTES

    def __init__(self, path: Path | str) -> None:
        table = rows(KERNELS / "abi_bkcl.tsv")
        symbols = {row["name"]: row["symbol"] for row in table if row["kind"] == "function"}
        enums = (row for row in table if row["kind"] == "enum")
        self.numbers = {row["name"]: int(row["declaration"]) for row in enums}
        self.context = ctypes.c_void_p()
        super().__init__(path, Interface("BKCL", FUNCTIONS, symbols=symbols), ERRORS)

    def identity(self) -> bytes:
        """A new unique id."""
        identity = ctypes.create_string_buffer(ID_BYTES)
        self.call("bkcl_get_unique_id", identity)
        return identity.raw

    def enter(self, rank: int, world: int, identity: bytes) -> None:
        """On the current device of this thread; leaves the ranks of a join that failed."""
        self.close()
        held = ctypes.create_string_buffer(identity, ID_BYTES)
        self.call("bkcl_init_rank", ctypes.byref(self.context), rank, world, held)

    def all_reduce(
        self, address: int, count: int, dtype: DType, operation: str, queue: int
    ) -> None:
        """In place."""
        numbers = self.numbers[DTYPES[dtype]], self.numbers[OPERATIONS[operation]]
        self.call("bkcl_all_reduce", self.context, address, address, count, *numbers, queue)

    def all_gather(self, target: int, source: int, count: int, dtype: DType, queue: int) -> None:
        """count: elements of the source."""
        number = self.numbers[DTYPES[dtype]]
        self.call("bkcl_all_gather", self.context, source, count, target, number, queue)

    def close(self) -> None:
        """Leave the other ranks; a second time does nothing."""
        context, self.context = self.context, ctypes.c_void_p()
        if context:
            self.call("bkcl_destroy_context", context)
