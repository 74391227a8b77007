"""One small operator of a chip's table, for checks of what surrounds an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.conform.expect import Broken, Lacking
from anychip.conform.scratch import Scratch, read, write
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec, Implementation, Launch
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor, TensorSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.oracle import filled
from anychip.ops.oracle.arrays import Array

LEVELS = 251
"""Values are 1 .. 251: whole numbers that every float type holds, and their successors too."""


@dataclass(frozen=True)
class _Way:
    """y = f(source). ones: a second input, all ones."""

    op: str
    source: str
    f: Callable[[Array], Any]
    ones: str = ""


_WAYS = (
    _Way("neg", "x", np.negative),
    _Way("add", "a", lambda x: (x.astype(np.float32) + 1).astype(x.dtype), "b"),
    _Way("copy", "x", np.copy),
)


class Elementwise:
    """y = f(x) for vectors of one size, by the first primitive of the table that serves them.

    Raises Lacking where none does, ChipError.
    """

    def __init__(self, chip: Chip, scratch: Scratch, size: int) -> None:
        self._chip, self._scratch = chip, scratch
        self._way, self._impl, self._call_spec = _choose(chip, size)
        self.spec = self._call_spec.outputs["y"]
        self._dtype = np.dtype(NUMPY_DTYPES[self.spec.dtype])
        self._ones = None
        if self._way.ones:
            self._ones = self.tensor(np.ones(size, self._dtype))

    @property
    def name(self) -> str:
        """The operator."""
        return self._way.op

    def values(self, number: int) -> Array:
        """A vector that is another one for each number up to 251."""
        ramp = np.arange(self.spec.size, dtype=np.int64) * 7 + number
        return (ramp % LEVELS + 1).astype(self._dtype)

    def tensor(self, array: Array | None = None) -> Tensor:
        """A vector on the device, filled with the array."""
        tensor = self._scratch.tensor(self.spec)
        if array is not None:
            write(self._chip, tensor, array)
        return tensor

    def launch(self, source: Tensor, target: Tensor) -> Launch:
        """target = f(source), prepared, with a workspace of its own."""
        nbytes = self._impl.workspace(self._call_spec)
        workspace = self._scratch.bytes(nbytes) if nbytes else None
        inputs = {self._way.source: source}
        if self._ones is not None:
            inputs[self._way.ones] = self._ones
        return self._impl.prepare(Call(self._call_spec, inputs, {"y": target}, workspace))

    def expect(self, target: Tensor, source: Array, what: str) -> None:
        """The target holds f(source). Raises Broken."""
        found = read(self._chip, target).view(self._dtype).astype(np.float32)
        wanted = np.asarray(self._way.f(source), np.float32)
        wrong = np.flatnonzero(found != wanted)
        if wrong.size:
            at = int(wrong[0])
            text = f"{what}: element {at} of '{self.name}' is {found[at]}, not {wanted[at]}"
            raise Broken(f"{text}; {wrong.size:,} of {wanted.size:,} are wrong")


def _choose(chip: Chip, size: int) -> tuple[_Way, Implementation, CallSpec]:
    for way, spec in _calls(chip, size):
        for impl in chip.operators.of(way.op):
            if impl.declines(spec) is None:
                return way, impl, spec
    ops = ", ".join(way.op for way in _WAYS)
    raise Lacking(f"none of the primitives {ops} takes a vector of {size:,} activations")


def _calls(chip: Chip, size: int) -> Iterator[tuple[_Way, CallSpec]]:
    for dtype in (DType.FLOAT32, *chip.capabilities().activation_dtypes):
        vector = TensorSpec((size,), dtype)
        for way in _WAYS:
            names = filter(None, (way.source, way.ones))
            inputs = dict.fromkeys(names, vector)
            yield way, CallSpec(way.op, inputs, {"y": vector}, filled(way.op, {}))
