"""The host rung: copy operands out, compute with hostops, copy results in. Only with
--allow-host-ops; every call and byte is counted, and the start-up table lists who runs so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anychip import hostops
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, Implementation, ImplKind, Launch, OperatorTable
from anychip.contract.tensor import Buffer, Tensor
from anychip.contract.weights import Weight
from anychip.ops.staged import Stage


@dataclass
class HostTraffic:
    """Calls of the host rung and bytes they moved, since the start."""

    calls: int = 0
    nbytes: int = 0

    def moved(self, nbytes: int) -> None:
        """Count a copy."""
        self.nbytes += nbytes


def host_table() -> OperatorTable:
    """Every hostops implementation as a host one, ids "host.<operator>"."""
    found = hostops.table(_array_of, prefix="host")
    return OperatorTable(tuple(replace(i, kind=ImplKind.HOST) for i in found))


def host_launch(
    implementation: Implementation, call: Call, memory: Memory, traffic: HostTraffic
) -> Launch:
    """A launch that stages every operand through host memory."""
    stage = Stage(memory, _HostPlace(), traffic.moved)
    inputs = stage.operands(call.inputs)
    outputs = {name: _twin(tensor) for name, tensor in call.outputs.items()}
    inner = implementation.prepare(Call(call.spec, inputs, outputs))
    staged = stage.launch(call, inner, outputs)

    def launch() -> None:
        traffic.calls += 1
        staged()

    return launch


class _HostPlace:
    """Host memory: a buffer's handle is an array of bytes."""

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(np.zeros(nbytes, np.uint8), nbytes)

    def weight(self, weight: Weight, stage: Stage) -> Weight:
        dense = None if weight.dense is None else stage.tensor(weight.dense)
        return replace(weight, dense=dense, tensors=())

    def put(self, target: Tensor, read: Callable[[memoryview], None]) -> None:
        read(target.buffer.handle.data)

    def get(self, source: Tensor) -> memoryview:
        found: memoryview = source.buffer.handle.data
        return found


def _twin(tensor: Tensor) -> Tensor:
    buffer = _HostPlace().allocate(tensor.extent_bytes)
    return replace(tensor, buffer=buffer, offset=0)


def _array_of(tensor: Tensor) -> hostops.views.Array:
    return hostops.array_view(tensor.buffer.handle, tensor)
