"""Prepared calls of kernels, and capture: those of a step become one call into the library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from anychip.chips.cpu.build import CHIP, STATUS, KernelLibrary, sizes_text
from anychip.contract.errors import ChipError
from anychip.contract.operators import Launch
from anychip.contract.optional import Capture


class KernelLaunch:
    """One prepared C call. function, address: where the kernel and its struct are."""

    __slots__ = ("_arguments", "_call", "_op", "address", "function")

    def __init__(self, op: str, call: Callable[[int], int], arguments: ctypes.Structure) -> None:
        self._op, self._call, self._arguments = op, call, arguments
        self.address = ctypes.addressof(arguments)
        self.function = ctypes.cast(call, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def __call__(self) -> None:
        status = self._call(self.address)
        if status:
            raise self.failed(status)

    def failed(self, status: int) -> ChipError:
        """What a status of this call means."""
        fact = STATUS[status]
        text = f"{fact.text} ({sizes_text(self._arguments)})"
        return ChipError(replace(fact, text=text), chip=CHIP, code=status, operators=(self._op,))


class CpuCapture(Capture):
    """Runs of kernels become native lists; numpy operators between them stay calls of their own."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """One launch. What it calls reads the same memory as the launches do."""
        parts: list[Launch] = []
        for native, run in groupby(launches, lambda launch: isinstance(launch, KernelLaunch)):
            found = list(run)
            kernels = [launch for launch in found if isinstance(launch, KernelLaunch)]
            parts += [self._listed(kernels)] if native else found
        return parts[0] if len(parts) == 1 else _in_turn(parts)

    def _listed(self, kernels: list[KernelLaunch]) -> Launch:
        replay = self._library.replay  # the C function itself: this is called in each step
        words = [word for kernel in kernels for word in (kernel.function, kernel.address)]
        calls = (ctypes.c_void_p * len(words))(*words)
        count, status = len(kernels), ctypes.c_int32(0)
        where, told = ctypes.cast(calls, ctypes.c_void_p), ctypes.byref(status)  # keep both

        def launch() -> None:
            done = replay(where, count, told)
            if done < count:
                raise kernels[done].failed(status.value)

        return launch


def _in_turn(parts: Sequence[Launch]) -> Launch:
    def launch() -> None:
        for part in parts:
            part()

    return launch
