"""The runtime (XRE): its functions, its codes, and the driver under `sdkbase`'s memory and queue.

XRE has no memset, no memory info and no bounded wait, and its copies wait for no queue: what
stands in for them is sdkbase's.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from anychip.sdkbase.errors import CodeSpace, ErrorTable
from anychip.sdkbase.library import Interface, VendorLibrary, declared

CHIP = "kunlun"
KERNELS = Path(__file__).with_name("kernels")
ERRORS = ErrorTable(
    CHIP,
    KERNELS / "errors.tsv",
    (CodeSpace("XRE", errno_below=700), *map(CodeSpace, ("XDNN", "BKCL", "XPUML"))),
)
"""Codes of XRE are as they are, XDNN's have 10,000 added, BKCL's 20,000, XPUML's 30,000."""
TO_HOST, TO_DEVICE, WITHIN = 0, 1, 2
PAGE = 128 << 10
"""Bytes by which the driver rounds an allocation up."""
XRE = Interface(
    "XRE",
    declared(
        "xpu_get_driver_version:pp xpu_get_runtime_version:pp xpu_set_device:i xpu_device_count:p "
        "xpu_device_get_attr:pii xpu_malloc:pui xpu_free:p xpu_memcpy:ppui xpu_memcpy_peer:ipipu "
        "xpu_memcpy_async:ppuip xpu_stream_create:p xpu_stream_destroy:p xpu_wait:p"
    ),
    optional=("xpu_memcpy_async",),
)


class Xre(VendorLibrary):
    """libxpurt. Raises ChipError."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path, XRE, ERRORS)

    def version(self, of: str) -> str:
        """major.minor of "driver" or "runtime": all that the runtime tells."""
        major, minor = ctypes.c_uint32(), ctypes.c_uint32()
        self.call(f"xpu_get_{of}_version", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"


class XreDriver:
    """One card and one queue; see `sdkbase.driver.PeerDriver`. number: the card's in XRE."""

    def __init__(self, xre: Xre, number: int) -> None:
        self.xre, self.number = xre, number
        self.use()
        self.handle = xre.ask("xpu_stream_create", ctypes.c_void_p)

    @property
    def queues_copies(self) -> bool:
        """Older runtimes lack the call."""
        return "xpu_memcpy_async" not in self.xre.missing

    def use(self) -> None:
        """The current device belongs to the thread."""
        self.xre.call("xpu_set_device", self.number)

    def wait(self) -> None:
        """For this queue alone, without a bound."""
        self.use()
        self.xre.call("xpu_wait", self.handle)

    def allocate(self, nbytes: int) -> int:
        """In main memory, not in L3."""
        address = ctypes.c_void_p()
        self.xre.call("xpu_malloc", ctypes.byref(address), nbytes, 0)
        return address.value or 0

    def release(self, address: int) -> None:
        """Nothing that is queued may use it."""
        self.xre.call("xpu_free", address)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        """Waits for no queue."""
        self.xre.call("xpu_memcpy", address, host, nbytes, TO_DEVICE)

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        """Waits for no queue."""
        self.xre.call("xpu_memcpy", host, address, nbytes, TO_HOST)

    def copy_within(self, target: int, source: int, nbytes: int) -> None:
        """Without the newer call it runs on the device's default queue, which is waited for."""
        if self.queues_copies:
            self.xre.call("xpu_memcpy_async", target, source, nbytes, WITHIN, self.handle)
        else:
            self.xre.call("xpu_memcpy", target, source, nbytes, WITHIN)
            self.xre.call("xpu_wait", None)

    def copy_peer(self, number: int, target: int, source: int, nbytes: int) -> None:
        """That the runtime's copy is done on return is assumed."""
        self.xre.call("xpu_memcpy_peer", number, target, self.number, source, nbytes)

    def close(self) -> None:
        """End the queue."""
        self.xre.call("xpu_stream_destroy", self.handle)
