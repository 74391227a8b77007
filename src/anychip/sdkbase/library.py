"""A vendor's C library through ctypes: declared functions, and statuses that become errors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anychip.contract.loader import load
from anychip.sdkbase.errors import ErrorTable

TYPES: Mapping[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "n": ctypes.c_uint,
    "u": ctypes.c_uint64,
    "z": ctypes.c_size_t,
}
"""Letters of parameters: a pointer, an int or enum, an unsigned, a uint64_t, a size_t."""


def declared(text: str) -> dict[str, str]:
    """Functions and the letters of their parameters from "name:letters name:letters"."""
    return dict(call.split(":") for call in text.split())


@dataclass(frozen=True)
class Interface:
    """What a chip calls of one library; every function returns an int, 0 where all is well.

    space: the library's name in the table of errors. functions: name -> letters. optional: those
    that some version lacks. symbols: other names in the linker's words (a C++ library's), tried
    where the plain one is not there.
    """

    space: str
    functions: Mapping[str, str]
    optional: tuple[str, ...] = ()
    symbols: Mapping[str, str] = field(default_factory=dict)

    @property
    def required(self) -> tuple[str, ...]:
        """Functions that the chip cannot do without."""
        return tuple(name for name in self.functions if name not in self.optional)


class VendorLibrary:
    """One loaded library. missing: optional functions that this version lacks.

    Raises ChipError (build, version) where it cannot be loaded or lacks what is required.
    """

    def __init__(self, path: Path | str, interface: Interface, errors: ErrorTable) -> None:
        self.errors, self.space = errors, interface.space
        self.missing: list[str] = []
        self._calls: dict[str, Any] = {}
        try:
            library = ctypes.CDLL(str(path))
            for name, letters in interface.functions.items():
                self._declare(library, name, letters, interface)
        except (OSError, AttributeError) as error:
            raise errors.unfit(str(error)) from error

    def _declare(self, library: ctypes.CDLL, name: str, letters: str, interface: Interface) -> None:
        symbol = name if hasattr(library, name) else interface.symbols.get(name, name)
        if name in interface.optional and not hasattr(library, symbol):
            self.missing.append(name)
            return
        self._calls[name] = getattr(library, symbol)
        self._calls[name].argtypes = [TYPES[letter] for letter in letters]

    def status(self, name: str, *arguments: Any) -> int:
        """Call, and give the vendor's status."""
        return int(self._calls[name](*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call; raises ChipError where the status is not 0."""
        if status := self.status(name, *arguments):
            raise self.errors.error(self.space, status, name)

    def ask(self, name: str, kind: type[Any], *arguments: Any) -> int:
        """A number from a function whose first parameter takes the answer."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return int(value.value or 0)


def load_in_order(paths: Iterable[Path], errors: ErrorTable) -> None:
    """Load all for each other to see, so that they need no LD_LIBRARY_PATH. Raises ChipError."""
    try:
        for path in paths:
            load(str(path))
    except OSError as error:
        raise errors.unfit(str(error)) from error
