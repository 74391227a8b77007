"""The child that holds the simulated card: takes pickled calls, answers with what came of them.

Run by sim_xdnn_card.py. A call is (symbol, arguments); an argument is a pair of a kind and a value:
array (dtype and shape from numpy, `shift` bytes off), same (the pointer of an earlier argument),
null, shape, number (a ctypes name and a value), vector (two halves and a length), reference.
"""

import ctypes
import pickle
import sys
from ctypes import byref, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import ml_dtypes  # noqa: F401 - arrays of bfloat16 arrive pickled
import numpy as np

D2H, H2D = 0, 1
ROOM = 64
"""Bytes beyond each array, so that a shifted pointer stays inside its allocation."""

runtime = ctypes.CDLL("libxpurt.so", mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL("libxpuapi.so")
runtime.xpu_malloc.argtypes = [c_void_p, c_uint64, ctypes.c_int]
runtime.xpu_memcpy.argtypes = [c_void_p, c_void_p, c_uint64, ctypes.c_int]
runtime.xpu_free.argtypes = runtime.xpu_wait.argtypes = [c_void_p]


class Shape(ctypes.Structure):
    """A std::vector<int64_t> as libstdc++ lays it out."""

    _fields_ = (("start", c_void_p), ("end", c_void_p), ("room", c_void_p))

    def __init__(self, values: list[int]) -> None:
        self.values = (c_int64 * len(values))(*values)
        start = ctypes.addressof(self.values)
        super().__init__(start, start + 8 * len(values), start + 8 * len(values))


class Halves(ctypes.Structure):
    """A VectorParam."""

    _fields_ = (("cpu", c_void_p), ("len", c_int64), ("xpu", c_void_p))


def check(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what}: {code}")


class Frame:
    """Arguments of one call, and the device memory behind them."""

    def __init__(self) -> None:
        self.pointers: list[int | None] = []
        self.kept: list[Any] = []

    def upload(self, array: np.ndarray) -> int:
        place = c_void_p()
        check(runtime.xpu_malloc(byref(place), array.nbytes + ROOM, 0), "xpu_malloc")
        data = np.ascontiguousarray(array)
        check(runtime.xpu_memcpy(place, data.ctypes.data, data.nbytes, H2D), "upload")
        self.kept.append(place)
        return int(place.value or 0)

    def array(self, value: tuple[np.ndarray, int]) -> c_void_p:
        array, shift = value
        self.pointers[-1] = self.upload(array) + shift
        return c_void_p(self.pointers[-1])

    def same(self, index: int) -> c_void_p:
        self.pointers[-1] = self.pointers[index]
        return c_void_p(self.pointers[-1])

    def null(self, value: None) -> c_void_p:
        return c_void_p(value)

    def host(self, array: np.ndarray) -> c_void_p:
        self.kept.append(array)
        return c_void_p(array.ctypes.data)

    def number(self, value: tuple[str, Any]) -> Any:
        return getattr(ctypes, value[0])(value[1])

    def shape(self, values: list[int]) -> Any:
        self.kept.append(Shape(values))
        return byref(self.kept[-1])

    def reference(self, value: int) -> Any:
        self.kept.append(c_int64(value))
        return byref(self.kept[-1])

    def vector(self, value: tuple[np.ndarray | None, np.ndarray | None, int]) -> Any:
        cpu, xpu, length = value
        host = None if cpu is None else self.host(cpu)
        device = None if xpu is None else self.upload(xpu)
        self.kept.append(Halves(host, length, device))
        return byref(self.kept[-1])

    def convert(self, kind: str, value: Any) -> Any:
        self.pointers.append(None)
        return getattr(self, kind)(value)

    def download(self, index: int, like: np.ndarray) -> np.ndarray:
        back = np.empty_like(like)
        place = c_void_p(self.pointers[index])
        check(runtime.xpu_memcpy(back.ctypes.data, place, back.nbytes, D2H), "download")
        return back

    def free(self) -> None:
        for thing in self.kept:
            if isinstance(thing, c_void_p):
                check(runtime.xpu_free(thing), "xpu_free")


def serve(context: c_void_p, symbol: str, arguments: list[tuple[str, Any]]) -> tuple[Any, ...]:
    """Status of the call, status of the wait, and the arrays as they are afterwards."""
    frame = Frame()
    words = [frame.convert(kind, value) for kind, value in arguments]
    status = getattr(library, symbol)(context, *words)
    waited = runtime.xpu_wait(None)
    arrays = {
        index: None if waited else frame.download(index, value[0])
        for index, (kind, value) in enumerate(arguments)
        if kind == "array" and value[1] == 0
    }
    if not waited:
        frame.free()
    return status, waited, arrays


def main() -> None:
    library._ZN5baidu3xpu3api14create_contextEv.restype = c_void_p
    context = c_void_p(library._ZN5baidu3xpu3api14create_contextEv())
    while asked := sys.stdin.buffer.read(8):
        call = pickle.loads(sys.stdin.buffer.read(int.from_bytes(asked, "little")))
        answer = pickle.dumps(serve(context if call[2] else c_void_p(), call[0], call[1]))
        sys.stdout.buffer.write(len(answer).to_bytes(8, "little") + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    assert ctypes.sizeof(c_size_t) == 8
    main()
