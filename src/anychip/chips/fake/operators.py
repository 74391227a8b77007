"""The simulated queue, and operators: numpy ones from hostops, checked before and after."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from anychip.chips.fake.memory import CHIP, FACTS, Code, DeviceFault, FakeMemory, Store
from anychip.chips.fake.memory_slow import HostBacking
from anychip.chips.fake.operators_lock import BusyLock
from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, invalid
from anychip.contract.execution import LaunchLog, Queue
from anychip.contract.operators import Call, Implementation, Launch, OperatorTable, Value
from anychip.contract.signature import Arg, Layout, Tier, infer_outputs
from anychip.contract.tensor import Buffer, IndexPair, Shape, Tensor
from anychip.contract.weights import (
    HostWeight,
    Weight,
    Weights,
    WeightSpec,
    WeightUse,
    check_bytes,
    stacked,
)
from anychip.hostops import NUMPY_DTYPES
from anychip.hostops import table as borrowed

DEPTH = 64  # pieces of work that may wait before the device starts on them by itself


@dataclass(frozen=True)
class Faults:
    """Faults on demand; each counts from 1, 0 is never. watchdog: seconds, see `Stream.wait`."""

    fail_allocation: int = 0
    fail_launch: int = 0
    hang_launch: int = 0
    lose_device_at: int = 0
    watchdog: float = 30.0


@dataclass(frozen=True)
class Slowness:
    """What makes it slow on demand: at each launch, and at each wait."""

    lock: BusyLock
    backing: HostBacking

    def close(self) -> None:
        """End what works beside the queue."""
        self.lock.close()
        self.backing.close()


class Stream:
    """The queue. Work runs when somebody waits, or when DEPTH pieces are queued: never at once."""

    def __init__(self, faults: Faults, verify: Callable[[], None], slowness: Slowness) -> None:
        self._faults, self._verify, self._slowness = faults, verify, slowness
        self._work: deque[tuple[str, Callable[[], None]]] = deque()
        self._log = LaunchLog()
        self._launches = 0
        self._late: DeviceFault | None = None
        self._hung = False

    def launch(self, name: str, work: Callable[[], None]) -> None:
        """Queue one operator."""
        self._slowness.lock.passed()
        self._launches += 1
        self._log.record(name)
        self.put(name, self._with_faults(self._launches, name, work))

    def put(self, name: str, work: Callable[[], None]) -> None:
        """Queue a copy, a fill or a free. After a fault the device takes no more work."""
        if self._hung or self._late is not None:
            return
        self._work.append((name, work))
        if len(self._work) >= DEPTH:
            self._run()

    def _with_faults(self, n: int, name: str, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if n == self._faults.hang_launch:
                self._hung = True
            elif n == self._faults.lose_device_at:
                raise DeviceFault(Code.LOST, f"the device left during '{name}' (launch {n})")
            elif n == self._faults.fail_launch:
                raise DeviceFault(Code.KERNEL, f"'{name}' failed (launch {n}, on demand)")
            else:
                work()

        return run

    def _run(self) -> None:
        while self._work and not self._hung and self._late is None:
            name, work = self._work.popleft()
            try:
                work()
            except DeviceFault as fault:
                self._late = fault
            except Exception as error:  # noqa: BLE001 - as on a device: told at the next wait
                text = f"'{name}' failed: {type(error).__name__}: {error}"
                self._late = DeviceFault(Code.KERNEL, text)
                self._late.__cause__ = error

    def wait(self, timeout: float | None) -> None:
        """Run everything, then report; every late error is fatal and is told by each wait after it.

        On a hung device: after `timeout` seconds, or, without one, after the driver's watchdog.
        """
        self._slowness.backing.touch()
        self._run()
        if self._hung:
            patience = self._faults.watchdog if timeout is None else timeout
            threading.Event().wait(patience)
            raise self._error(DeviceFault(Code.TIMEOUT, f"no progress within {patience:g} s"))
        if self._late is None:
            self._check_guards()
        if self._late is not None:
            raise self._error(self._late)
        self._log.confirm()

    def _check_guards(self) -> None:
        try:
            self._verify()
        except DeviceFault as fault:
            self._late = fault

    def _error(self, fault: DeviceFault) -> ChipError:
        fact = replace(FACTS[fault.code], text=str(fault))
        error = ChipError(fact, chip=CHIP, code=int(fault.code), operators=self._log.unconfirmed)
        error.__cause__ = fault
        return error


class FakeQueue(Queue):
    """The device's only queue."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def synchronize(self, timeout: float | None) -> None:
        """Run what is queued; late errors come out here."""
        self._stream.wait(timeout)


class FakeWeights(Weights):
    """Dense and row-major, parts stacked; parts of different formats become float32."""

    def __init__(self, memory: FakeMemory) -> None:
        self._memory = memory

    def plan(
        self, formats: tuple[str, ...], shapes: tuple[Shape, ...], uses: frozenset[WeightUse]
    ) -> WeightSpec:
        """Size and format; allocates nothing. Raises ChipError (invalid)."""
        return stacked(CHIP, formats, shapes)

    def prepare(self, parts: tuple[HostWeight, ...], uses: frozenset[WeightUse]) -> Weight:
        """Copy the parts in, one behind the other."""
        formats, shapes = tuple(p.format for p in parts), tuple(p.shape for p in parts)
        spec = self.plan(formats, shapes, uses)
        dtype = DType(spec.format)
        arrays = [_array(part) for part in parts]
        tensor = Tensor(spec.shape, dtype, buffer=self._memory.allocate(spec.nbytes))
        start = 0
        for array in arrays:
            held = array.astype(NUMPY_DTYPES[dtype], copy=False)
            rows = tensor.view(array.shape, offset=start)
            self._memory.copy_in(rows, held.reshape(-1).view(np.uint8).data)
            start += array.size
        return Weight(spec, (tensor,), dense=tensor)

    def release(self, weight: Weight) -> None:
        """Free the one buffer."""
        self._memory.free(weight.tensors[0].buffer)


def _array(part: HostWeight) -> np.ndarray:
    check_bytes(CHIP, part)
    return np.frombuffer(part.data, NUMPY_DTYPES[DType(part.format)]).reshape(part.shape)


def strict_table(
    store: Store, stream: Stream, *, primitives_only: bool, without: Collection[str]
) -> OperatorTable:
    """The chip's table. Each launch checks its buffers, poisons its outputs, runs late."""
    ops = [i.op for i in borrowed(store.array)]
    if primitives_only:
        ops = [op for op in ops if CATALOGUE[op].tier is Tier.PRIMITIVE]
    kept = [op for op in ops if op not in without]
    found = borrowed(store.array, ops=kept, prefix=CHIP)
    return OperatorTable(tuple(_strict(i, store, stream) for i in found))


def _strict(impl: Implementation, store: Store, stream: Stream) -> Implementation:
    def prepare(call: Call) -> Launch:
        check_call(call)
        run_kernel = impl.prepare(call)
        outputs = [store.array(t) for t in call.outputs.values()]
        buffers = _buffers(call)

        def run() -> None:
            for array in outputs:
                store.poison(array)
            run_kernel()
            store.verify(buffers, impl.op)

        def launch() -> None:
            for buffer in buffers:
                store.data(buffer)
            stream.launch(impl.op, run)

        return launch

    return replace(impl, prepare=prepare)


def check_call(call: Call) -> None:
    """Values fit their spec and signature, outputs share no memory. Raises ChipError (invalid)."""
    spec, signature = call.spec, CATALOGUE[call.spec.op]
    expected = infer_outputs(signature, spec.inputs, spec.attrs)
    for arg, wanted in zip(signature.outputs, expected, strict=True):
        got = call.outputs[arg.name]
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype) or not got.is_contiguous:
            raise _refuse(call, arg, f"is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}")
    for arg in signature.inputs:
        _check_input(call, arg, call.inputs.get(arg.name))
    _check_apart(call)


def _check_input(call: Call, arg: Arg, value: Value | None) -> None:
    planned = call.spec.inputs.get(arg.name)
    if (value is None) != (planned is None):
        raise _refuse(call, arg, "is there in the call or in its spec, not in both")
    if value is None or planned is None:
        return
    got = value if isinstance(value, Tensor) else value.spec
    if got.shape != planned.shape:
        raise _refuse(call, arg, f"has shape {got.shape}, its spec says {planned.shape}")
    if isinstance(value, IndexPair) and value.host.nbytes != value.device.nbytes:
        raise _refuse(call, arg, "has halves of different sizes")
    if isinstance(value, Tensor):
        _check_layout(call, arg, value)


def _check_layout(call: Call, arg: Arg, tensor: Tensor) -> None:
    if arg.layout is Layout.CONTIGUOUS and not tensor.is_contiguous:
        raise _refuse(call, arg, f"must be contiguous, its strides are {tensor.strides}")
    if arg.layout is Layout.ROWS and not tensor.has_contiguous_rows:
        raise _refuse(call, arg, f"must have contiguous rows, its strides are {tensor.strides}")


def _check_apart(call: Call) -> None:
    inputs = [t for v in call.inputs.values() for t in _tensors(v)]
    outputs = list(call.outputs.items())
    for position, (name, out) in enumerate(outputs):
        others = inputs + [t for _, t in outputs[position + 1 :]]
        if any(_overlap(out, other) for other in others):
            raise invalid(
                CHIP,
                ChipLayer.OPERATORS,
                f"{call.spec.op}: output '{name}' shares memory with another argument",
            )


def _overlap(a: Tensor, b: Tensor) -> bool:
    apart = a.offset + a.extent_bytes <= b.offset or b.offset + b.extent_bytes <= a.offset
    return a.buffer is b.buffer and a.size > 0 and b.size > 0 and not apart


def _refuse(call: Call, arg: Arg, text: str) -> Exception:
    return invalid(CHIP, ChipLayer.OPERATORS, f"{call.spec.op}: '{arg.name}' {text}")


def _tensors(value: Value | None) -> tuple[Tensor, ...]:
    if isinstance(value, Weight):
        return value.tensors
    if isinstance(value, CacheView):
        return value.k, value.v
    if isinstance(value, IndexPair):
        return (value.device,)
    return () if value is None else (value,)


def _buffers(call: Call) -> tuple[Buffer, ...]:
    tensors = [t for v in (*call.inputs.values(), *call.outputs.values()) for t in _tensors(v)]
    return tuple({id(t.buffer): t.buffer for t in tensors}.values())
