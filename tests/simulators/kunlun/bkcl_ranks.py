"""Processes that are the ranks of one communicator, through ctypes and the ABI table."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sim_runtime_tree import Tree
from sim_trees import TABLES

ABI = TABLES / "abi_bkcl.tsv"

PRELUDE = """
import numpy as np, ml_dtypes
table = [line.rstrip("\\n").split("\\t") for line in open(os.environ["TEST_ABI"])]
bkcl = ctypes.CDLL(os.environ["TEST_BKCL"])
N = {row[1]: int(row[3]) for row in table if row[0] == "enum"}
SYMBOL = {row[1]: row[5] for row in table if row[0] == "function"}
ADD, PRODUCT, MAX, MIN = (N["BKCL_" + name] for name in ("ADD", "PRODUCT", "MAX", "MIN"))
KINDS = {
    "UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64, "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16, "FLOAT": np.float32, "FLOAT64": np.float64,
}
RANK, WORLD = int(os.environ["TEST_RANK"]), int(os.environ["TEST_WORLD"])
context, stream = P(), made(xpu.xpu_stream_create)

def call(name, *arguments):
    return getattr(bkcl, SYMBOL["bkcl_" + name])(*arguments)

def do(name, *arguments):
    expect((name, call(name, *arguments)), (name, 0))

def size(n):
    return c_size_t(n)

def identity():
    # Rank 0 makes the id, the others find it in a file.
    path, room = os.environ["TEST_ID"], ctypes.create_string_buffer(128)
    if RANK == 0:
        do("get_unique_id", room)
        with open(path + ".new", "wb") as file:
            file.write(room.raw)
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    room.raw = open(path, "rb").read()
    return room

def join_code(rank=None, world=None, room=None):
    rank = RANK if rank is None else rank
    return call("init_rank", byref(context), rank, world or WORLD, room or identity())

def device_array(values):
    values = np.ascontiguousarray(values)
    address = malloc(max(values.nbytes, 1))
    if values.nbytes:
        expect(upload(address, values.tobytes()), 0)
    return P(address)

def fetch(address, kind, count):
    raw = download(address, np.dtype(kind).itemsize * count) if count else b""
    return np.frombuffer(raw, kind)

def wait():
    return xpu.xpu_wait(P(stream))

def values(rank, count, kind, scale=1):
    # Different on each rank, of both signs where the type has signs, with fractions where it has
    # those; small, so that products fit.
    numbers = np.random.default_rng(100 + rank).integers(-9, 10, count) * scale
    if np.dtype(kind).kind not in "iu":
        numbers = numbers * 0.37
    return numbers.astype(kind)
"""


@dataclass(frozen=True)
class Ranks:
    """How the ranks of one test are started; each waits for the others in bkcl_init_rank."""

    tree: Tree
    folder: Path

    @property
    def library(self) -> Path:
        return self.tree.root / "sdk" / "lib" / "libbkcl.so"

    def start(self, rank: int, world: int, body: str, **variables: str) -> subprocess.Popen:
        mine = {
            "TEST_RANK": str(rank),
            "TEST_WORLD": str(world),
            "TEST_ID": str(self.folder / "id"),
            "TEST_ABI": str(ABI),
            "TEST_BKCL": str(self.library),
            "BKCL_TIMEOUT": "600",
        }
        return self.tree.start(PRELUDE + body, **(mine | variables))

    def run(self, world: int, body: str, **variables: str) -> list[tuple[str, str]]:
        """What each rank printed, on both channels; all must end well."""
        started = [self.start(rank, world, body, **variables) for rank in range(world)]
        return [finish(child) for child in started]


def finish(child: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    try:
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == code, f"{child.returncode}\n{out}\n{err}"
    return out, err
