"""The queue, the operators and the weights."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.execution import LaunchLog, Queue
from anychip.contract.memory import Memory
from anychip.contract.operators import (
    Call,
    CallSpec,
    DtypeRow,
    Implementation,
    Launch,
    OperatorTable,
)
from anychip.contract.signature import Tier
from anychip.contract.tensor import Shape, Tensor
from anychip.contract.weights import HostWeight, Weight, Weights, WeightSpec, WeightUse
from anychip.hostops import table as borrowed
from anychip_pebble.memory import CHIP, FACTS, Code, array_of

PRIMITIVES = tuple(name for name, s in CATALOGUE.items() if s.tier is Tier.PRIMITIVE)
MOST_ROWS = 1024  # beyond, the vendor's norm kernel is wrong


class Stream:
    """The device's one queue. Pebble computes at once; a failure is told at the next wait."""

    def __init__(self) -> None:
        self._log = LaunchLog()
        self._failure: Exception | None = None

    def launch(self, op: str, work: Launch) -> None:
        """Vendor: launch on the stream. After a failure the device takes no more work."""
        self._log.record(op)
        if self._failure is None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - as on a device: told at the next wait
                self._failure = error

    def wait(self, timeout: float | None) -> None:
        """Vendor: synchronize the stream, bounded by `timeout` seconds."""
        if self._failure is not None:
            fact = replace(FACTS[Code.KERNEL_FAILED], text=str(self._failure))
            queued = self._log.unconfirmed
            code = int(Code.KERNEL_FAILED)
            raise ChipError(fact, chip=CHIP, code=code, operators=queued) from self._failure
        self._log.confirm()


class PebbleQueue(Queue):
    """What the core sees of the stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """Late errors come out here."""
        self._stream.wait(timeout)


def primitives() -> tuple[Implementation, ...]:
    """Vendor: one library call each. Pebble borrows numpy's."""
    return borrowed(array_of, ops=PRIMITIVES, prefix=CHIP)


def queued(implementation: Implementation, stream: Stream) -> Implementation:
    """The same, with its launches put on the stream."""

    def prepare(call: Call) -> Launch:
        work = implementation.prepare(call)
        return lambda: stream.launch(implementation.op, work)

    return replace(implementation, prepare=prepare)


def prepare_rms_norm(call: Call) -> Launch:
    """x / sqrt(mean(x**2) + eps) * weight. Addresses and sizes are resolved now, once."""
    x, weight = array_of(call.inputs["x"]), array_of(call.inputs["weight"])
    y, eps = array_of(call.outputs["y"]), np.float32(call.attrs["eps"])

    def launch() -> None:
        mean = np.mean(np.square(x), axis=-1, keepdims=True)
        np.multiply(x / np.sqrt(mean + eps), weight, out=y)

    return launch


def too_many_rows(call: CallSpec) -> str | None:
    """None where the kernel covers the call, otherwise the reason."""
    rows = call.outputs["y"].shape[0]
    return f"{rows:,} rows, the kernel takes {MOST_ROWS:,}" if rows > MOST_ROWS else None


RMS_NORM = Implementation(
    op="rms_norm",
    id="pebble.rms_norm",
    prepare=prepare_rms_norm,
    dtypes=(DtypeRow({"X": ("float32",)}),),
    when=too_many_rows,
)


def make_table(stream: Stream, *, native: bool, without: Collection[str]) -> OperatorTable:
    """The primitives, with `native` also what was written by hand, all but those in `without`."""
    for op in set(without) - set(CATALOGUE):
        raise ContractError(f"chip '{CHIP}': option without: no operator is named '{op}'")
    found = (*primitives(), *((RMS_NORM,) if native else ()))
    return OperatorTable(tuple(queued(i, stream) for i in found)).without(without)


class PebbleWeights(Weights):
    """Dense and row-major, which the compositions can read. One format: parts simply follow."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """The parts stacked along N."""
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        return WeightSpec("float32", shape, math.prod(shape) * 4, dense=True)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Vendor: pack into the layout that its matrix product likes best."""
        spec = self.plan(tuple(p.format for p in parts), tuple(p.shape for p in parts), uses)
        tensor = Tensor(spec.shape, DType.FLOAT32, buffer=self._memory.allocate(spec.nbytes))
        self._memory.copy_in(tensor, memoryview(b"".join(p.data for p in parts)))
        return Weight(spec, (tensor,), dense=tensor)

    def release(self, weight: Weight) -> None:
        """Free what `prepare` allocated."""
        self._memory.free(weight.tensors[0].buffer)
