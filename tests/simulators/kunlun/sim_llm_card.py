"""Calls of the simulated language-model libraries, through a driver compiled as a user's code."""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from sim_trees import HOME, NATIVE, shared_tree, with_accounts
from sim_worker import Worker, started_worker

HERE = Path(__file__).parent
WORKER = HERE / "sim_llm_worker.py"
SOURCES = (HERE / "sim_llm_products.cpp", HERE / "sim_llm_attention.cpp")
INCLUDES = ("", "xhpc", "xhpc/xblas", "xhpc/xfa", "xft")
LIBRARIES = ("xft_blocks", "apiinfer", "xpu_flash_attention", "xpu_blas", "xpuapi")
SUCCESS, INVALID_PARAM, NOT_IMPLEMENT, KEXCEPTION = 0, 1, 4, -714

TYPES: dict[str, int] = {"float": 0, "float16": 1, "bfloat16": 2}
COMPUTE = TYPES | {"tfloat32": 3, "int16": 4, "int32": 5, "int_with_ll": 6}
DTYPES: dict[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


@dataclass(frozen=True)
class Pair:
    """A length vector in both halves; `device` where it does not say what the host half does."""

    host: Sequence[int] | None
    device: Sequence[int] | None = None
    both: bool = True

    def halves(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        host = None if self.host is None else np.array(self.host, np.int32)
        device = self.host if self.device is None else self.device
        return host, np.array(device, np.int32) if self.both and device is not None else None

    def __len__(self) -> int:
        return 0 if self.host is None else len(self.host)


ABSENT = Pair(None)
"""A pair that is not given."""


@dataclass(frozen=True)
class Host:
    """Host memory where device memory belongs."""

    array: np.ndarray


def made(kind: str, *shape: int) -> np.ndarray:
    """Memory for a result, filled with what no result is."""
    return np.full(shape, 1e4, DTYPES[kind])


@dataclass(frozen=True)
class Answer:
    """What a call returned, what the wait after it returned, and the arrays afterwards."""

    status: int
    waited: int
    arrays: list[np.ndarray]

    def at(self, index: int) -> np.ndarray:
        """The array at this place among the pointers, of a call that went well."""
        assert (self.status, self.waited) == (SUCCESS, 0), (self.status, self.waited)
        return self.arrays[index]


class Card:
    """A simulated card in a child process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def call(
        self,
        name: str,
        pointers: Sequence[Any],
        numbers: Sequence[int],
        floats: Sequence[float] = (),
        texts: Sequence[str] = (),
        context: int | None = 0,
    ) -> Answer:
        """One call of the driver; a Pair among the pointers becomes its two halves.

        context: of which card, the current one being 0; None: no context.
        """
        words: list[tuple[str, Any]] = []
        for pointer in pointers:
            words.extend(words_of(pointer))
        message = (name, words, list(numbers), list(floats), list(texts), context)
        return Answer(*self.worker.exchange(message))


def words_of(pointer: Any) -> list[tuple[str, Any]]:
    """A pointer in the worker's words."""
    match pointer:
        case None:
            return [("null", None)]
        case Pair():
            host, device = pointer.halves()
            halves = (("host", host), ("device", device))
            return [(word, half) if half is not None else ("null", None) for word, half in halves]
        case Host(array):
            return [("host", array)]
    return [("device", pointer)]


def driver(tree: Path) -> Path:
    """The driver, compiled against the tree's headers and linked with its libraries."""
    headers = sorted((NATIVE / "include").rglob("*.h"))
    texts = [path.read_bytes() for path in (*SOURCES, HERE / "sim_llm_driver.h", *headers)]
    name = hashlib.sha256(b"\0".join([str(tree).encode(), *texts])).hexdigest()[:16]
    place = HOME / f"llm_driver_{name}.so"
    with (HOME / "llm_driver.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            compile_driver(tree, place)
    return place


def compile_driver(tree: Path, place: Path) -> None:
    include = [f"-I{tree / 'sdk' / 'include' / folder}" for folder in INCLUDES]
    folders = [f"-L{tree / 'sdk' / 'lib'}", f"-L{tree / 'runtime' / 'lib'}"]
    links = [f"-l{name}" for name in (*LIBRARIES, "xpurt")]
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    fresh = place.with_suffix(".new")
    command = ["g++", *flags, *include, *map(str, SOURCES), *folders, *links, "-o", str(fresh)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    fresh.replace(place)


@contextmanager
def started_card(folder: Path, **variables: str) -> Iterator[Card]:
    """A card with accounts of its own in `folder`."""
    tree = shared_tree()
    library = driver(tree)
    environment = with_accounts(tree, folder).environment(**variables)
    with started_worker([str(WORKER), str(library)], environment) as worker:
        yield Card(worker)


def values(kind: str, *shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Reproducible normal values, as the dtype holds them."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * scale).astype(np.float32).astype(DTYPES[kind])


def exact(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Relative L2 distance; a scale that is wrong shows, unlike in a cosine."""
    return float(np.linalg.norm(exact(found) - wanted) / np.linalg.norm(wanted))


BOUND = {"float": 2e-6, "float16": 8e-4, "bfloat16": 6e-3}
"""Relative L2 of results that were rounded once to the dtype."""
