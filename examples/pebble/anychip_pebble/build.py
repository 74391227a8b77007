"""Build: the C source becomes a library, compiled once and cached; what must be installed."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from anychip.contract.build import Build, Finding, Library, Verdict
from anychip.contract.compile import (
    BuildOrder,
    NoCompiler,
    build_error,
    cached_library,
    compile_library,
    find_compiler,
    is_intact,
)
from anychip_pebble.memory import CHIP

LOG = logging.getLogger("anychip.chip")
SOURCE = Path(__file__).with_name("kernels") / f"{CHIP}.c"
ORDER = BuildOrder(CHIP, f"anychip_{CHIP}", (SOURCE,), ("-O2",))

Kernel = Callable[..., int]
"""A C function: it returns a status, 0 or one of memory.py's codes."""

_POINTER, _SIZE, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
FUNCTIONS = {
    "rms_norm": ctypes.CFUNCTYPE(
        ctypes.c_int, _POINTER, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _FLOAT
    ),
    "silu_and_mul": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _SIZE, _SIZE),
}
"""Operator -> what its C function takes, as the source declares it."""


def load_kernels(folder: Path) -> dict[str, Kernel]:
    """The C functions by operator, compiled into `folder` unless it has them.

    Raises NoCompiler, or ChipError with what the compiler or the loader said.
    """
    path = compile_library(ORDER, cache_dir=folder, progress=LOG.info)
    try:
        library = ctypes.CDLL(str(path))
        return {op: prototype((f"{CHIP}_{op}", library)) for op, prototype in FUNCTIONS.items()}
    except (OSError, AttributeError) as error:
        raise build_error(CHIP, f"{path} cannot be loaded: {error}") from error


def versions() -> dict[str, str]:
    """Vendor: what its own version call returns, never what an environment variable says."""
    try:
        compiler = find_compiler(CHIP).version
    except NoCompiler as error:
        compiler = error.fact.text
    return {"numpy": version("numpy"), "compiler": compiler}


class DeviceBuild(Build):
    """One source, one library. folder: where it is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def requires(self) -> tuple[Library, ...]:
        """Vendor: its shared libraries and headers, with the package that brings each."""
        return ()

    def versions(self) -> Mapping[str, str]:
        """Measured now."""
        return versions()

    def check(self) -> tuple[Finding, ...]:
        """Vendor: are the libraries there, do driver and SDK go together? Nothing is built here."""
        try:
            compiler = find_compiler(CHIP)
        except NoCompiler as error:
            step = "install g++; until then there are no native operators, all are composed"
            return (Finding("compiler", Verdict.BAD, error.fact.text, step),)
        path = cached_library(ORDER, cache_dir=self._folder, compiler=compiler)
        built = is_intact(path)
        text = str(path) if built else f"not built yet, or damaged, in {self._folder}"
        return (
            Finding("compiler", Verdict.GOOD, compiler.version),
            Finding("kernels", Verdict.GOOD if built else Verdict.UNKNOWN, text),
        )

    def compile(self) -> str:
        """The library's path. Raises NoCompiler, ChipError."""
        return str(compile_library(ORDER, cache_dir=self._folder, progress=LOG.info))
