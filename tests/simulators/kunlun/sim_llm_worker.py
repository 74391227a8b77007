"""The child that holds the simulated card: takes pickled calls of the driver, answers with what
came of them. Run by sim_llm_card.py with the driver's path."""

import ctypes
import pickle
import sys
from ctypes import byref, c_char_p, c_double, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any

import ml_dtypes  # noqa: F401 - arrays of bfloat16 arrive pickled
import numpy as np

D2H, H2D = 0, 1

runtime = ctypes.CDLL("libxpurt.so", mode=ctypes.RTLD_GLOBAL)
xpuapi = ctypes.CDLL("libxpuapi.so")
driver = ctypes.CDLL(sys.argv[1])
runtime.xpu_malloc.argtypes = [c_void_p, c_uint64, ctypes.c_int]
runtime.xpu_memcpy.argtypes = [c_void_p, c_void_p, c_uint64, ctypes.c_int]
runtime.xpu_free.argtypes = runtime.xpu_wait.argtypes = [c_void_p]


class Lists(ctypes.Structure):
    """What the driver reads."""

    _fields_ = tuple((name, c_void_p) for name in ("pointers", "numbers", "floats", "texts"))


def check(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what}: {code}")


def upload(array: np.ndarray) -> int:
    place = c_void_p()
    check(runtime.xpu_malloc(byref(place), array.nbytes, 0), "xpu_malloc")
    data = np.ascontiguousarray(array)
    check(runtime.xpu_memcpy(place, data.ctypes.data, data.nbytes, H2D), "upload")
    return int(place.value or 0)


def download(place: int, like: np.ndarray) -> np.ndarray:
    back = np.empty_like(like)
    check(runtime.xpu_memcpy(back.ctypes.data, place, back.nbytes, D2H), "download")
    return back


def address(kind: str, value: Any) -> int | None:
    match kind:
        case "device":
            return upload(value)
        case "host":
            return int(value.ctypes.data)
    return None


def array_of(kind: Any, items: list[Any]) -> Any:
    return (kind * max(1, len(items)))(*items)


def serve(context: c_void_p, name: str, pointers: list[tuple[str, Any]], *rest: Any) -> Any:
    """Status of the call, status of the wait, and the arrays as they are afterwards."""
    numbers, floats, texts = rest
    places = [address(kind, value) for kind, value in pointers]
    kept = (
        array_of(c_void_p, places),
        array_of(c_int64, numbers),
        array_of(c_double, floats),
        array_of(c_char_p, [text.encode() for text in texts]),
    )
    lists = Lists(*(ctypes.addressof(items) for items in kept))
    status = getattr(driver, name)(context, byref(lists))
    waited = runtime.xpu_wait(None)
    if waited:
        return status, waited, []
    on_card = [
        (kind == "device", place, value)
        for (kind, value), place in zip(pointers, places, strict=True)
    ]
    arrays = [download(place, value) if there else None for there, place, value in on_card]
    for there, place, _ in on_card:
        if there:
            check(runtime.xpu_free(place), "xpu_free")
    return status, waited, arrays


@cache
def context_of(card: int | None) -> c_void_p:
    """A context on that card; card 0 stays the current one."""
    if card is None:
        return c_void_p()
    check(runtime.xpu_set_device(card), "xpu_set_device")
    context = c_void_p(xpuapi._ZN5baidu3xpu3api14create_contextEv())
    check(runtime.xpu_set_device(0), "xpu_set_device")
    return context


def main() -> None:
    xpuapi._ZN5baidu3xpu3api14create_contextEv.restype = c_void_p
    while asked := sys.stdin.buffer.read(8):
        *call, card = pickle.loads(sys.stdin.buffer.read(int.from_bytes(asked, "little")))
        answer = pickle.dumps(serve(context_of(card), *call))
        sys.stdout.buffer.write(len(answer).to_bytes(8, "little") + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
