"""The host rung: copy operands out, compute with hostops, copy results in. Only with
--allow-host-ops; every call and byte is counted, and the start-up table lists who runs so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anychip import hostops
from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, Implementation, ImplKind, Launch, OperatorTable, Value
from anychip.contract.tensor import Buffer, IndexPair, Tensor
from anychip.contract.weights import Weight


@dataclass
class HostTraffic:
    """Calls of the host rung and bytes they moved, since the start."""

    calls: int = 0
    nbytes: int = 0


def host_table() -> OperatorTable:
    """Every hostops implementation as a host one, ids "host.<operator>"."""
    found = hostops.table(_array_of, prefix="host")
    return OperatorTable(tuple(replace(i, kind=ImplKind.HOST) for i in found))


def host_launch(
    implementation: Implementation, call: Call, memory: Memory, traffic: HostTraffic
) -> Launch:
    """A launch that stages every operand through host memory."""
    stage = _Stage(memory, traffic)
    signature = CATALOGUE[call.spec.op]
    inputs = {name: stage.operand(value) for name, value in call.inputs.items()}
    outputs = {name: stage.tensor(tensor) for name, tensor in call.outputs.items()}
    inner = implementation.prepare(Call(call.spec, inputs, outputs))
    reads = [t for v in call.inputs.values() for t in _tensors(v)]
    writes = [t for n in signature.writes for t in _tensors(call.inputs[n])]
    writes += call.outputs.values()

    def launch() -> None:
        traffic.calls += 1
        for tensor in reads:
            stage.copy_out(tensor)
        inner()
        for tensor in writes:
            stage.copy_in(tensor)

    return launch


def _tensors(value: Value | None) -> tuple[Tensor, ...]:
    """Tensors behind an operand that the host must read."""
    if isinstance(value, CacheView):
        return (value.k, value.v)
    if isinstance(value, IndexPair):
        return (value.device,)
    if isinstance(value, Weight):
        return () if value.dense is None else (value.dense,)
    return () if value is None else (value,)


class _Stage:
    """Host twins of device tensors: the same strides over a copy of the bytes they span."""

    def __init__(self, memory: Memory, traffic: HostTraffic) -> None:
        self._memory, self._traffic = memory, traffic
        self._twins: dict[int, Tensor] = {}

    def operand(self, value: Value | None) -> Value | None:
        if isinstance(value, CacheView):
            return CacheView(value.spec, self.tensor(value.k), self.tensor(value.v))
        if isinstance(value, IndexPair):
            return IndexPair(value.host, self.tensor(value.device))
        if isinstance(value, Weight):
            dense = None if value.dense is None else self.tensor(value.dense)
            return replace(value, dense=dense, tensors=())
        return None if value is None else self.tensor(value)

    def tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._twins:
            raw = np.zeros(tensor.extent_bytes, np.uint8)
            twin = Buffer(raw, raw.nbytes)
            self._twins[id(tensor)] = replace(tensor, buffer=twin, offset=0)
        return self._twins[id(tensor)]

    def copy_out(self, tensor: Tensor) -> None:
        self._move(self._memory.copy_out, tensor)

    def copy_in(self, tensor: Tensor) -> None:
        self._move(self._memory.copy_in, tensor)

    def _move(self, copy: Callable[[Tensor, memoryview], None], tensor: Tensor) -> None:
        nbytes = tensor.extent_bytes
        if nbytes:
            window = Tensor((nbytes,), DType.UINT8, buffer=tensor.buffer, offset=tensor.offset)
            copy(window, self._twins[id(tensor)].buffer.handle.data)
            self._traffic.nbytes += nbytes


def _array_of(tensor: Tensor) -> hostops.views.Array:
    return hostops.array_view(tensor.buffer.handle, tensor)
