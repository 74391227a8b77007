"""A vendor of one file of C functions, and the chip over it: what a chip writes, in small."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anychip.contract.build import Build
from anychip.contract.dtype import DType
from anychip.contract.errors import ErrorFact
from anychip.contract.registration import Capabilities, Option, register_chip
from anychip.sdkbase.blocks import Blocks, Granularity, Measured
from anychip.sdkbase.build import NATIVE
from anychip.sdkbase.calls import Shim
from anychip.sdkbase.errors import CodeSpace, ErrorTable
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.implementations import table_of
from anychip.sdkbase.library import Interface, VendorLibrary, declared
from anychip.sdkbase.memory import PeerMemory
from anychip.sdkbase.registration import SdkChip, Seen, looked
from anychip.sdkbase.sdk import Sdk, found_sdk, sdk_options
from anychip.sdkbase.stream import Stream, StreamQueue
from anychip.sdkbase.weights import DenseWeights

TOTAL, PAGE, POOLED = 8 << 20, 4096, 1 << 20
CODES = """\
space	code	name	layer	kind	fatal	text
DEV	2	FULL	memory	out of memory	no	no room
DEV	3	BAD	memory	invalid argument	no	not allowed
DEV	9	LATE	operators	kernel failure	yes	a kernel failed
OPS	3	BAD	operators	invalid argument	no	an operand is not allowed
"""
CALLS = Interface(
    "DEV",
    declared(
        "dev_use:i dev_count:p dev_open:p dev_close:p dev_left:p dev_waits:p dev_late:i dev_hang:i "
        "dev_alloc:pu dev_free:p dev_put:ppu dev_get:ppu dev_peer:ippu dev_move:ppup dev_set:piu "
        "dev_wait:p dev_newer:p"
    ),
    optional=("dev_newer",),
)
ROWS = [
    {"operator": op, "name": op, "call": f"dev_{op}", "types": types, "compute": "float32"}
    | {"guard": "", "reads_host": "", "evidence": evidence, "assumed": assumed}
    for op, types, evidence, assumed in (
        ("add", "A=float32", "header", ""),
        ("silu", "X=floats", "guess", "its sign"),
        ("exp", "X=floats", "header", ""),
    )
]


@functools.cache
def folder() -> Path:
    """Where the device's library and its table of errors are, made once a process."""
    place = Path(tempfile.mkdtemp(prefix="small_device"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (place / "lib").mkdir()
    source = Path(__file__).with_name("small_device.cpp")
    library = str(place / "lib" / "libdev.so")
    flags = ["-shared", "-fPIC", f"-I{NATIVE}", "-Wl,-soname,libdev.so"]
    subprocess.run(["g++", *flags, str(source), "-o", library], check=True)
    (place / "errors.tsv").write_text(CODES)
    return place


def errors(place: Path | None = None) -> ErrorTable:
    """Of the device made elsewhere, or of this process's."""
    spaces = (CodeSpace("DEV"), CodeSpace("OPS", errno_below=2))
    return ErrorTable("small", (place or folder()) / "errors.tsv", spaces)


def library_at(path: str | Path) -> VendorLibrary:
    return VendorLibrary(path, CALLS, errors(Path(path).parents[1]))


class SmallDriver:
    """`sdkbase.driver.PeerDriver`."""

    def __init__(self, library: VendorLibrary, number: int, queues_copies: bool = True) -> None:
        self.library, self.number, self.queues_copies = library, number, queues_copies
        self.use()
        self.handle = library.ask("dev_open", ctypes.c_void_p)

    def use(self) -> None:
        self.library.call("dev_use", self.number)

    def wait(self) -> None:
        self.library.call("dev_wait", self.handle)

    def allocate(self, nbytes: int) -> int:
        address = ctypes.c_void_p()
        self.library.call("dev_alloc", ctypes.byref(address), nbytes)
        return address.value or 0

    def release(self, address: int) -> None:
        self.library.call("dev_free", address)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        self.library.call("dev_put", address, host, nbytes)

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        self.library.call("dev_get", host, address, nbytes)

    def copy_within(self, target: int, source: int, nbytes: int) -> None:
        if self.queues_copies:
            self.library.call("dev_move", target, source, nbytes, self.handle)
        else:
            self.library.call("dev_put", target, source, nbytes)

    def copy_peer(self, number: int, target: int, source: int, nbytes: int) -> None:
        self.library.call("dev_peer", number, target, source, nbytes)

    def close(self) -> None:
        self.library.call("dev_close", self.handle)


class Parts:
    """Queue and memory of the device, without a chip around them."""

    def __init__(
        self, *, queues_copies: bool = True, block_limit: int = 0, device: int = 0, path: str = ""
    ) -> None:
        self.library = library_at(path or str(folder() / "lib" / "libdev.so"))
        driver = SmallDriver(self.library, device, queues_copies)
        self.stream = Stream("small", driver)
        self.queue = StreamQueue(self.stream)
        grain = Granularity(PAGE, POOLED, block_limit)
        self.blocks = Blocks(self.stream, device, self.measure, grain)
        self.memory = PeerMemory(self.stream, self.blocks, driver)

    def measure(self) -> Measured:
        return Measured(TOTAL, self.library.ask("dev_left", ctypes.c_uint64), "the device")

    def set_bytes(self, tensor: Any, byte: int) -> None:
        """A kernel: it runs when the queue is waited for."""
        at = self.blocks.address(tensor)
        self.stream.put("set", lambda: self.library.call("dev_set", at, byte, tensor.nbytes))

    def close(self) -> None:
        self.blocks.close()
        self.stream.close()


class NoBuild(Build):
    def requires(self):
        return ()

    def versions(self):
        return {}

    def check(self):
        return ()


@register_chip("small", contract=(0, 3))
class SmallChip(SdkChip):
    vendor = "nobody"
    options = (*sdk_options("SMALL_ROOT", ""), Option("visible", str, "", "cards"))
    _needed = ("dev",)
    _install = "write one"
    _if_sick = "compile it again"
    _look = f"{__name__}:look"

    @classmethod
    def _sdk(cls, options: Mapping[str, Any]) -> Sdk:
        return found_sdk(options, SdkForm("/nowhere", ()), ["dev"])

    @classmethod
    def _elsewhere(cls) -> str:
        return "nothing else"

    def _set_up(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        path = str(self._sdk(options).libraries["dev"])
        parts = Parts(device=device, path=path)
        closing.callback(parts.stream.close)
        closing.callback(parts.blocks.close)
        known = parts.library.errors
        shim = Shim(path, "shim", known, lambda status: "OPS", parts.blocks.address)
        shim.open(parts.stream.handle, lambda: parts.stream.wait(5.0))
        closing.callback(shim.close)
        closing.callback(parts.stream.sound)
        self.memory, self.queue, self.build = parts.memory, parts.queue, NoBuild()
        guards = {"": lambda call: None}
        self.operators = table_of(ROWS, shim, parts.stream, guards, proved=False)
        self.weights = DenseWeights(self.name, parts.memory)

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        return errors().fact(code)

    def capabilities(self) -> Capabilities:
        return Capabilities(activation_dtypes=(DType.FLOAT32,), cache_dtypes=(DType.FLOAT32,))


class StuckChip(SmallChip):
    """Its queue hangs."""

    def _set_up(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        super()._set_up(device, options, closing)
        library_at(self._sdk(options).libraries["dev"]).call("dev_hang", 1)


class BrokenChip(SmallChip):
    """It cannot be opened whole."""

    def _set_up(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        super()._set_up(device, options, closing)
        self.memory.allocate(PAGE)
        raise errors(Path(options["sdk_root"])).unfit("a part is missing")


def look(paths: Mapping[str, str]) -> dict[str, Any]:
    def ask(seen: Seen) -> None:
        seen.versions["driver"] = "1"
        library = library_at(paths["dev"])
        count = library.ask("dev_count", ctypes.c_int)
        seen.cards += [("Small", TOTAL, f"place {index}") for index in range(count)]

    return looked(ask)
