"""A tree with the simulated runtime alone, and child processes that call it through ctypes."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "simulators" / "kunlun" / "anychip_sim_kunlun" / "native"
HERE = Path(__file__).parent
MIB = 1 << 20

P800 = {
    "profile": "p800",
    "driver": "5.0.21.21",
    "runtime": "5.0.21.19",
    "pci": "0000:03:00.0,0000:16:00.0",
    "serial": "02K15K624CV00304,02K15K624CV00305",
    "minor": "0,2",
    "model_name": "P800 OAM",
    "firmware": "1.0:2.6:1.39.1.7",
    "pci_device": "0x3688",
    "board_id": "7",
    "onboard_id": "1",
    "model": "300",
    "clusters": "12",
    "sdnn": "13",
    "copy_engines": "4",
    "hardware_queues": "16",
    "encoders": "0",
    "decoders": "2",
    "image_units": "3",
    "capacity": str(96 << 30),
    "page": "131072",
    "block": "0",
    "l3_capacity": str(96 * MIB),
    "l3_page": "4096",
    "idle_celsius": "36",
    "busy_celsius": "71",
    "idle_milliwatts": "86000",
    "busy_milliwatts": "400000",
    "clock_mhz": "1450",
    "memory_clock_mhz": "1450",
}
"""A board of two cards; each number differs from its neighbours, so that a mix-up shows."""

R200 = P800 | {
    "profile": "r200",
    "driver": "4.33.0.0",
    "runtime": "4.32.0.1",
    "model": "2",
    "model_name": "R200",
    "capacity": str(16 << 30),
    "block": str(4 << 30),
    "l3_capacity": str(63 * MIB),
}

PRELUDE = """
import ctypes, os, sys, threading, time
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
xpu = ctypes.CDLL(os.environ["TEST_RUNTIME"], mode=ctypes.RTLD_GLOBAL)
probe = ctypes.CDLL(os.environ["TEST_KERNELS"])
P, U64, INT = c_void_p, c_uint64, c_int
for name, types in {
    "xpu_malloc": [P, U64, INT], "xpu_free": [P], "xpu_mmap": [P, P, c_size_t],
    "xpu_memcpy": [P, P, U64, INT], "xpu_memcpy_peer": [INT, P, INT, P, U64],
    "xpu_memcpy_async": [P, P, U64, INT, P], "xpu_set_device": [INT],
    "xpu_host_register": [P, U64, c_uint], "xpu_host_unregister": [P],
    "xpu_host_alloc": [P, U64, c_uint], "xpu_host_free": [P], "xpu_wait": [P],
    "xpu_stream_create": [P], "xpu_stream_destroy": [P], "xpu_stream_wait_event": [P, P],
    "xpu_event_create": [P], "xpu_event_record": [P, P], "xpu_event_wait": [P],
    "xpu_event_destroy": [P], "xpu_event_query": [P], "xpu_device_get_attr": [P, INT, INT],
    "xpu_launch_config": [INT, INT, P], "xpu_launch_argument_set": [P, c_size_t, c_size_t],
    "xpu_launch_async": [P], "xpu_kernel_debug": [P],
    **dict.fromkeys(
        ["xpu_create_cl_func", "xpu_create_sd_func"],
        [P, U64, c_uint32, c_uint32, c_uint32, U64, c_char_p, ctypes.c_bool],
    ),
}.items():
    if hasattr(xpu, name):
        getattr(xpu, name).argtypes = types
probe.probe_fill.argtypes = [P, P, c_int64, INT]
probe.probe_sleep.argtypes = [P, INT]
probe.probe_empty.argtypes = [P, INT]
probe.probe_reach_outside.argtypes = probe.probe_is_device.argtypes = [P]
probe.probe_fault.argtypes = [c_char_p]
D2H, H2D, D2D = 0, 1, 2
MIB, GIB = 1 << 20, 1 << 30

def made(function, *arguments):
    handle = P()
    code = function(byref(handle), *arguments)
    assert code == 0, (function.__name__, code)
    return handle.value

def malloc(size, kind=0):
    return made(xpu.xpu_malloc, size, kind)

def malloc_code(size, kind=0):
    return xpu.xpu_malloc(byref(P()), size, kind)

def upload(address, data):
    return xpu.xpu_memcpy(address, data, len(data), H2D)

def download(address, size):
    host = ctypes.create_string_buffer(size)
    code = xpu.xpu_memcpy(host, address, size, D2H)
    assert code == 0, code
    return host.raw

def expect(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"
"""
"""What each child runs first."""


@dataclass(frozen=True)
class Tree:
    """A folder laid out as the vendor's, with a board and, beside it, the kernels of the tests."""

    root: Path
    kernels: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def library(self) -> Path:
        return self.root / "runtime" / "lib" / "libxpurt.so"

    def environment(self, **variables: str) -> dict[str, str]:
        mine = {"TEST_RUNTIME": str(self.library), "TEST_KERNELS": str(self.kernels)}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("XPU", "TEST_"))}
        return clean | mine | self.variables | variables

    def with_variables(self, **variables: str) -> "Tree":
        return Tree(self.root, self.kernels, self.variables | variables)

    def start(self, body: str, **variables: str) -> subprocess.Popen:
        """A child that runs `body` after the prelude; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + body],
            env=self.environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def child(
        self, body: str, timeout: float = 60, **variables: str
    ) -> subprocess.CompletedProcess:
        """The ended child, whatever its end was."""
        return subprocess.run(
            [sys.executable, "-c", PRELUDE + body],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def run(self, body: str, **variables: str) -> str:
        """Standard output of a child that must end well."""
        ended = self.child(body, **variables)
        assert ended.returncode == 0, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


def compile_native(output: Path, sources: list[Path], *more: str) -> Path:
    """The one place where these tests call the compiler."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]
    folders = [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'runtime'}"]
    command = ["g++", *flags, *folders, *map(str, sources), "-o", str(output), *more]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return output


def make_board(maker: Path, root: Path, **keys: str) -> None:
    """Writes root/state/board; raises where make_board refuses."""
    (root / "state").mkdir(parents=True, exist_ok=True)
    words = [f"{key}={value}" for key, value in keys.items()]
    subprocess.run([maker, root / "state" / "board", *words], check=True, capture_output=True)


def build_runtime(root: Path, major: int) -> Path:
    sources = [s for s in (NATIVE / "runtime").glob("*.cpp") if s.name != "make_board.cpp"]
    version = f"-DXPURT_VERSION_MAJOR={major}"
    library = root / "runtime" / "lib" / "libxpurt.so"
    shared = ("-shared", "-Wl,-z,defs", version)
    compile_native(library, sources, *shared, "-Wl,-soname,libxpurt.so", "-lpthread", "-ldl")
    kernels = HERE / "sim_runtime_kernels.cpp"
    compile_native(root / "kernels.so", [kernels], *shared, str(library))
    return root


def tree_of(built: Path, maker: Path, root: Path, keys: dict[str, str]) -> Tree:
    """A tree of its own, so that no test sees another's accounts; the library is linked hard."""
    library = root / "runtime" / "lib" / "libxpurt.so"
    library.parent.mkdir(parents=True)
    library.hardlink_to(built / "runtime" / "lib" / "libxpurt.so")
    make_board(maker, root, **keys)
    return Tree(root, built / "kernels.so")
