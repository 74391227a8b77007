"""The queue, the operators and the weights."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ContractError, invalid
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
from anychip.hostops.views import Array
from anychip_pebble.build import Kernel
from anychip_pebble.memory import CHIP, Code, array_of, fact_of

PRIMITIVES = tuple(name for name, s in CATALOGUE.items() if s.tier is Tier.PRIMITIVE)
FLOAT32 = (DtypeRow({"X": ("float32",)}),)
MOST_ROWS = 1024  # beyond, the vendor's norm kernel refuses


class KernelFailed(Exception):
    """A kernel returned a status that is not 0."""

    def __init__(self, code: int) -> None:
        super().__init__(fact_of(code).text)
        self.code = code


def code_of(failure: Exception) -> int:
    """Vendor: what its wait returns."""
    return failure.code if isinstance(failure, KernelFailed) else int(Code.KERNEL_FAILED)


class Stream:
    """The device's one queue. This one computes at once; a failure is told at the next wait."""

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
            code, queued = code_of(self._failure), self._log.unconfirmed
            fact = replace(fact_of(code), text=str(self._failure))
            raise ChipError(fact, chip=CHIP, code=code, operators=queued) from self._failure
        self._log.confirm()


class DeviceQueue(Queue):
    """What the core sees of the stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """Late errors come out here."""
        self._stream.wait(timeout)


def primitives() -> tuple[Implementation, ...]:
    """Vendor: one library call each. These are numpy's, borrowed."""
    return borrowed(array_of, ops=PRIMITIVES, prefix=CHIP)


def native(kernels: Mapping[str, Kernel]) -> tuple[Implementation, ...]:
    """Vendor: what was written by hand, one entry for each kernel; none where none were built."""
    if not kernels:
        return ()
    return (
        Implementation(
            op="rms_norm",
            id=f"{CHIP}.rms_norm",
            prepare=partial(prepare_rms_norm, kernels["rms_norm"]),
            dtypes=FLOAT32,
            when=too_many_rows,
        ),
        Implementation(
            op="silu_and_mul",
            id=f"{CHIP}.silu_and_mul",
            prepare=partial(prepare_silu_and_mul, kernels["silu_and_mul"]),
            dtypes=FLOAT32,
        ),
    )


def prepare_rms_norm(kernel: Kernel, call: Call) -> Launch:
    """Addresses and sizes are resolved now, once. The rows of x may lie apart."""
    x, weight = array_of(call.inputs["x"]), array_of(call.inputs["weight"])
    y, eps = array_of(call.outputs["y"]), call.attrs["eps"]
    stride = x.strides[0] // x.itemsize
    return launch_of(kernel, address(x), address(weight), address(y), *y.shape, stride, eps)


def too_many_rows(call: CallSpec) -> str | None:
    """None where the kernel covers the call, otherwise the reason."""
    rows = call.outputs["y"].shape[0]
    return f"{rows:,} rows, the kernel takes {MOST_ROWS:,}" if rows > MOST_ROWS else None


def prepare_silu_and_mul(kernel: Kernel, call: Call) -> Launch:
    """Both are contiguous: the signature says so."""
    x, y = array_of(call.inputs["x"]), array_of(call.outputs["y"])
    return launch_of(kernel, address(x), address(y), *y.shape)


def address(array: Array) -> ctypes.c_void_p:
    """What a kernel is given. It keeps the memory alive as long as the launch is."""
    return array.ctypes.data_as(ctypes.c_void_p)


def launch_of(kernel: Kernel, *arguments: object) -> Launch:
    """A launch that calls the kernel and looks at its status."""

    def launch() -> None:
        status = kernel(*arguments)
        if status:
            raise KernelFailed(status)

    return launch


def queued(implementation: Implementation, stream: Stream) -> Implementation:
    """The same, with its launches put on the stream."""

    def prepare(call: Call) -> Launch:
        work = implementation.prepare(call)
        return lambda: stream.launch(implementation.op, work)

    return replace(implementation, prepare=prepare)


def make_table(
    stream: Stream, kernels: Mapping[str, Kernel], without: Collection[str]
) -> OperatorTable:
    """The primitives and what was written by hand, all but the operators in `without`."""
    for op in set(without) - set(CATALOGUE):
        raise ContractError(f"chip '{CHIP}': option without: no operator is named '{op}'")
    found = (*primitives(), *native(kernels))
    return OperatorTable(tuple(queued(i, stream) for i in found)).without(without)


class DeviceWeights(Weights):
    """Dense and row-major, which the compositions can read. One format: parts simply follow."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """The parts stacked along N. Vendor: every format that `capabilities` lists."""
        for other in set(formats) - {"float32"}:
            raise invalid(CHIP, ChipLayer.OPERATORS, f"a weight in {other}, not in float32")
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
