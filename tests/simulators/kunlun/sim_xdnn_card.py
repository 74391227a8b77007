"""Calls of the simulated libxpuapi, by the declarations and symbols of abi_xdnn.tsv."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from sim_trees import TABLES, shared_tree, with_accounts
from sim_worker import Worker, started_worker

WORKER = Path(__file__).with_name("sim_xdnn_worker.py")
TABLE = TABLES / "abi_xdnn.tsv"
NAMESPACE = "baidu::xpu::api::"
SUCCESS, INVALID_PARAM, RUNTIME_ERROR, NOT_IMPLEMENT = 0, 1, 2, 4
KEXCEPTION = 714
"""The runtime answers waits with negated codes, its own header with positive ones."""

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int32_t": np.int32,
    "int64_t": np.int64,
    "bool": np.bool_,
}
REAL = ("float", "float16", "bfloat16")
SCALARS = {
    "float": "c_float",
    "int8_t": "c_int8",
    "uint8_t": "c_uint8",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "bool": "c_bool",
}


@dataclass(frozen=True)
class Out:
    """Device memory that the call fills; it starts as bytes that no test expects."""

    shape: tuple[int, ...]

    def array(self, dtype: Any) -> np.ndarray:
        raw = np.full(int(np.prod(self.shape)) * np.dtype(dtype).itemsize, 0xA5, np.uint8)
        return raw.view(dtype).reshape(self.shape)


@dataclass(frozen=True)
class Same:
    """The pointer of an earlier argument, counted without the context."""

    index: int


@dataclass(frozen=True)
class Shifted:
    """An array whose pointer is some bytes off."""

    array: np.ndarray
    shift: int = 1


@dataclass(frozen=True)
class Host:
    """A pointer to host memory where device memory belongs."""

    array: np.ndarray


@dataclass(frozen=True)
class Halves:
    """A VectorParam; `length` where it is not that of the halves."""

    cpu: np.ndarray | None
    xpu: np.ndarray | None
    length: int | None = None

    def words(self) -> tuple[np.ndarray | None, np.ndarray | None, int]:
        halves = [half for half in (self.cpu, self.xpu) if half is not None]
        known = len(halves[0]) if halves else 0
        return self.cpu, self.xpu, known if self.length is None else self.length


def table(path: Path = TABLE) -> list[dict[str, str]]:
    """The rows of an ABI table."""
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@dataclass(frozen=True)
class Function:
    """One operator: names and types of its parameters, and a symbol for each instantiation."""

    parameters: tuple[str, ...]
    symbols: dict[str, str]
    names: tuple[str, ...]

    @classmethod
    def of(cls, row: dict[str, str]) -> "Function":
        inside = row["declaration"].split("(", 1)[1].rsplit(")", 1)[0]
        parameters = [p.split("=")[0].strip() for p in inside.split(", ")]
        types = [re.sub(r"\s*\b\w+$", "", p) for p in parameters]
        symbols = {}
        for cell in row["symbol"].split(";"):
            kinds, symbol = cell.split(":", 1)
            symbols[",".join(k.split("=")[1] for k in kinds.split(","))] = symbol
        names = re.findall(r"typename (\w+)", row["declaration"])
        return cls(tuple(types[1:]), symbols, tuple(names))


FUNCTIONS = {
    row["name"].removeprefix(NAMESPACE): Function.of(row)
    for row in table()
    if row["kind"] == "function" and row["declaration"].startswith("template")
}


def instances(name: str) -> list[str]:
    """The instantiations of an operator, such as "float" or "float,int32_t"."""
    return list(FUNCTIONS[name].symbols)


@dataclass(frozen=True)
class Answer:
    """What a call returned, what the wait after it returned, and the arrays afterwards."""

    status: int
    waited: int
    arrays: dict[int, np.ndarray]

    @property
    def output(self) -> np.ndarray:
        """The last array of a call that went well."""
        assert (self.status, self.waited) == (SUCCESS, 0), (self.status, self.waited)
        return self.arrays[max(self.arrays)]


class Card:
    """A simulated card in a child process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def call(self, name: str, kinds: str, *arguments: Any, context: bool = True) -> Answer:
        """Call one instantiation; default arguments must be given too."""
        function = FUNCTIONS[name]
        assert len(arguments) == len(function.parameters), (name, function.parameters)
        bound = dict(zip(function.names, kinds.split(","), strict=True))
        pairs = zip(function.parameters, arguments, strict=True)
        words = [argument(kind, value, bound) for kind, value in pairs]
        return Answer(*self.worker.exchange((function.symbols[kinds], words, context)))


def argument(kind: str, value: Any, bound: dict[str, str]) -> tuple[str, Any]:
    """One argument in the worker's words, by the parameter's declared type."""
    if kind.endswith("*"):
        return pointer(kind, value, bound)
    if kind.startswith("const VectorParam"):
        return "vector", value.words()
    if kind == "const std::vector<int64_t>&":
        return "shape", list(value)
    if kind == "const int64_t&":
        return "reference", value
    return "number", scalar(bound.get(kind, kind), value)


def pointer(kind: str, value: Any, bound: dict[str, str]) -> tuple[str, Any]:
    word = kind.removeprefix("const ").removesuffix("*")
    dtype = DTYPES[bound.get(word, word)]
    match value:
        case None:
            return "null", None
        case Same(index):
            return "same", index
        case Host(array):
            return "host", array
    return "array", device_array(value, dtype)


def device_array(value: Out | Shifted | np.ndarray, dtype: Any) -> tuple[np.ndarray, int]:
    """The array to upload, and how far its pointer is off."""
    match value:
        case Out():
            return value.array(dtype), 0
        case Shifted(array, shift):
            return array.astype(dtype), shift
    assert value.dtype == dtype, (value.dtype, dtype)
    return value, 0


def scalar(kind: str, value: Any) -> tuple[str, Any]:
    if kind in ("float16", "bfloat16"):
        return "c_uint16", int(np.array(value, DTYPES[kind]).view(np.uint16))
    return SCALARS[kind], value


@contextmanager
def started_card(folder: Path, **variables: str) -> Iterator[Card]:
    """A card with accounts of its own in `folder`."""
    tree = with_accounts(shared_tree(), folder)
    with started_worker([str(WORKER)], tree.environment(**variables)) as worker:
        yield Card(worker)


def numbers(kind: str, *shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Reproducible values of a dtype; floats in low to high, integers scaled up to spread."""
    rng = np.random.default_rng([len(kind), *shape])
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind in REAL:
        return rng.uniform(low, high, shape).astype(np.float32).astype(DTYPES[kind])
    lowest = 0 if kind == "uint8_t" else int(low * 10)
    return rng.integers(lowest, int(high * 10) + 1, shape).astype(DTYPES[kind])


def wide(array: np.ndarray) -> np.ndarray:
    """16-bit floats as float32, all else as it is."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def assert_close(found: np.ndarray, wanted: np.ndarray, slack: float = 4e-6) -> None:
    """Equal up to one step of a 16-bit dtype, or up to `slack`, relative, in float32."""
    step = {2: 2.0**-10 if found.dtype == np.float16 else 2.0**-7}.get(found.dtype.itemsize, slack)
    exact = wanted.astype(found.dtype).astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=step, atol=slack)


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal in shape, dtype and every bit, but for the sign and payload of a NaN."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
