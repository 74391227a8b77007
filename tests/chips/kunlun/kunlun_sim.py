"""What the tests of the kunlun chip share: options, parts without operators, bytes."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sim_trees import HOME, NATIVE, SimTree

from anychip.chips.kunlun.memory import CHIP, PAGE, Xre, XreDriver
from anychip.chips.kunlun.telemetry import XpuML
from anychip.contract.dtype import DType
from anychip.contract.registration import read_options
from anychip.contract.tensor import Tensor
from anychip.sdkbase.blocks import Blocks, Granularity, Measured
from anychip.sdkbase.memory import PeerMemory
from anychip.sdkbase.stream import Stream, StreamQueue

MIB = 1 << 20


def options_for(root: Path, **given: str) -> dict[str, Any]:
    """Every option, for a tree, whatever variables are set here."""
    from anychip.chips.kunlun.registration import KunlunChip

    places = {
        "sdk_root": str(root / "sdk"),
        "runtime_lib": str(root / "runtime" / "lib"),
        "build_dir": str(HOME / "shim"),
    }
    return read_options(KunlunChip, places | given, {})


class Parts:
    """Memory and queue of one card, without operators; kernels that take their time."""

    def __init__(self, sdk: SimTree, kernels: Path, card: int = 0, block_limit: int = 0) -> None:
        libraries = sdk.root / "runtime" / "lib"
        self.xpuml = XpuML(libraries / "libxpuml.so")
        self.xre = Xre(libraries / "libxpurt.so")
        self.card, driver = card, XreDriver(self.xre, card)
        self.stream = Stream(CHIP, driver)
        measure = lambda: Measured(*self.xpuml.memory(card)[:2], "XPUML")  # noqa: E731
        grain = Granularity(PAGE, block_limit=block_limit)
        self.blocks = Blocks(self.stream, card, measure, grain)
        self.memory = PeerMemory(self.stream, self.blocks, driver)
        self.queue = StreamQueue(self.stream)
        self._kernels = ctypes.CDLL(str(kernels))

    def close(self) -> None:
        self.blocks.close()
        self.stream.close()
        self.xpuml.close()

    def sleep(self, milliseconds: int) -> None:
        self.stream.use()
        handle = ctypes.c_void_p(self.stream.handle)
        assert self._kernels.probe_sleep(handle, milliseconds) == 0
        self.stream.launched("sleep")

    def set_bytes(self, tensor: Tensor, value: int, milliseconds: int = 0) -> None:
        """A kernel that writes after a while."""
        if milliseconds:
            self.sleep(milliseconds)
        self.stream.use()
        assert self.launch_fill(tensor, value) == 0
        self.stream.launched("set_bytes")

    def launch_fill(self, tensor: Tensor, value: int) -> int:
        """The runtime's status of such a launch."""
        address = ctypes.c_void_p(tensor.buffer.handle.address + tensor.offset)
        handle, size = ctypes.c_void_p(self.stream.handle), ctypes.c_int64(tensor.nbytes)
        return int(self._kernels.probe_fill(handle, address, size, value))

    def bytes(self, size: int) -> Tensor:
        return Tensor((size,), DType.UINT8, buffer=self.memory.allocate(size))

    def upload(self, content: np.ndarray) -> Tensor:
        tensor = self.bytes(content.nbytes)
        self.memory.copy_in(tensor, content.reshape(-1).view(np.uint8).data)
        return tensor

    def download(self, tensor: Tensor) -> np.ndarray:
        host = np.zeros(tensor.nbytes, np.uint8)
        self.memory.copy_out(tensor, host.data)
        return host


def compiled_kernels(sdk: SimTree, output: Path) -> Path:
    """The simulator's test kernels, linked to this tree's runtime."""
    source = Path(__file__).parents[2] / "simulators" / "kunlun" / "sim_runtime_kernels.cpp"
    folders = [f"-I{sdk.root / 'sdk' / 'include'}", f"-I{NATIVE / 'runtime'}"]
    library = str(sdk.root / "runtime" / "lib" / "libxpurt.so")
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", *folders, str(source)]
    subprocess.run([*command, "-o", str(output), library], check=True)
    return output


PRELUDE = """
import json, os, signal, sys, time
sys.path[:0] = json.loads(os.environ["TEST_PATH"])
import numpy as np
import kunlun_sim
from pathlib import Path
from sim_trees import SimTree
from anychip.contract.errors import ChipError
from anychip.contract.dtype import DType
from anychip.contract.tensor import Tensor
sdk = SimTree(Path(os.environ["TEST_TREE"]), Path(os.environ["XPUSIM_STATE"]))
kernels, limit = Path(os.environ["TEST_KERNELS"]), int(os.environ["TEST_LIMIT"])
parts = kunlun_sim.Parts(sdk, kernels, block_limit=limit)

def told(act):
    try:
        act()
    except ChipError as error:
        return str(error)
    return "no error"
"""
"""What each child runs first. It is `parts` on card 0; `told` is the text of an error."""


def start(
    sdk: SimTree, kernels: Path, body: str, *, faults: str = "", limit: int = 0
) -> subprocess.Popen[str]:
    """A child that runs `body` under faults; the caller ends it. limit: see `Granularity`."""
    known = {"TEST_PATH": json.dumps(sys.path), "TEST_TREE": str(sdk.root)}
    known |= {"TEST_KERNELS": str(kernels), "TEST_LIMIT": str(limit), "XPUSIM_FAULTS": faults}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + body],
        env=sdk.environment(**known),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(child: "subprocess.Popen[str]", timeout: float = 60) -> str:
    """Standard output of a child that must end well."""
    try:
        out, err = child.communicate(timeout=timeout)
    finally:
        child.kill()
    assert child.returncode == 0, f"{child.returncode}\n{out}\n{err}"
    return out
