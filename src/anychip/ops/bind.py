"""Binding, second half: a program meets its memory, and every call becomes a prepared launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, Implementation, ImplKind, Launch
from anychip.contract.operators import Value as Operand
from anychip.contract.signature import ArgKind
from anychip.contract.tensor import Buffer, IndexPair, Tensor
from anychip.contract.weights import Weight
from anychip.ops.arena import ArenaPlan, plan_arena
from anychip.ops.host import HostTraffic, host_launch
from anychip.ops.trace import Node, Program
from anychip.ops.value import CacheRef, Ref, Value, WeightRef


@dataclass
class Operands:
    """What a program is given, by name. arena: scratch for everything made within it."""

    arena: Buffer
    indices: dict[str, IndexPair] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    weights: Mapping[str, Weight] = field(default_factory=dict)
    caches: tuple[CacheView, ...] = ()
    states: Mapping[str, Tensor] = field(default_factory=dict)
    traffic: HostTraffic = field(default_factory=HostTraffic)

    @property
    def pages(self) -> int:
        """Pages of a cache, the sink included; 1 where no layer has one."""
        return self.caches[0].spec.pages if self.caches else 1

    @property
    def slots(self) -> int:
        """Slots of recurrent state, the sink included; 0 where no layer has one."""
        return next((t.shape[0] for t in self.states.values()), 0)


class ArenaTooSmall(RuntimeError):
    """A program needs more scratch than there is. needed: bytes."""

    def __init__(self, needed: int, planned: int) -> None:
        self.needed = needed
        super().__init__(f"a program needs {needed:,} bytes of scratch, {planned:,} were planned")


@dataclass(frozen=True)
class BoundCall:
    """One prepared call."""

    call: Call
    implementation: Implementation
    launch: Launch


@dataclass(frozen=True)
class BoundProgram:
    """Prepared calls in order; `results` are tensors that hold the outputs after a run."""

    calls: tuple[BoundCall, ...]
    results: dict[str, Tensor]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches alone."""
        return tuple(c.launch for c in self.calls)


def bind(program: Program, operands: Operands, memory: Memory) -> BoundProgram:
    """Prepare every call. Raises ArenaTooSmall, or what a chip's `prepare` raises."""
    plan = plan_arena(program)
    if plan.nbytes > operands.arena.nbytes:
        raise ArenaTooSmall(plan.nbytes, operands.arena.nbytes)
    resolver = _Resolver(operands, plan)
    calls = tuple(_prepare(n, i, resolver, memory) for i, n in enumerate(program.nodes))
    return BoundProgram(calls, {n: resolver.tensor(v) for n, v in program.results.items()})


def _prepare(node: Node, index: int, resolver: _Resolver, memory: Memory) -> BoundCall:
    implementation = node.decision.implementation
    if implementation is None:
        raise ValueError(f"'{node.spec.op}' was decided as composed and cannot be bound")
    call = Call(
        node.spec,
        {n: resolver.operand(node, n, v) for n, v in node.inputs.items()},
        {n: resolver.tensor(v) for n, v in node.outputs.items()},
        resolver.workspace(index),
    )
    if implementation.kind is ImplKind.HOST:
        return BoundCall(call, implementation, resolver.host(implementation, call, memory))
    return BoundCall(call, implementation, implementation.prepare(call))


class _Resolver:
    """Turns symbols into tensors, index pairs, weights and caches."""

    def __init__(self, operands: Operands, plan: ArenaPlan) -> None:
        self._given, self._plan = operands, plan

    def operand(self, node: Node, name: str, ref: Ref | None) -> Operand | None:
        if ref is None:
            return None
        if isinstance(ref, WeightRef):
            return self._given.weights[ref.name]
        if isinstance(ref, CacheRef):
            return self._given.caches[ref.layer]
        if CATALOGUE[node.spec.op].arg(name).kind is ArgKind.INDEX:
            return self._given.indices[ref.storage.key]
        return self.tensor(ref)

    def tensor(self, value: Value) -> Tensor:
        buffer, start = self._home(value)
        offset = start + value.offset * value.dtype.itemsize
        return Tensor(value.shape, value.dtype, value.spec.strides, buffer=buffer, offset=offset)

    def host(self, implementation: Implementation, call: Call, memory: Memory) -> Launch:
        return host_launch(implementation, call, memory, self._given.traffic)

    def workspace(self, index: int) -> Tensor | None:
        if index not in self._plan.workspaces:
            return None
        offset, nbytes = self._plan.workspaces[index]
        return Tensor((nbytes,), DType.UINT8, buffer=self._given.arena, offset=offset)

    def _home(self, value: Value) -> tuple[Buffer, int]:
        storage = value.storage
        if storage.kind == "arena":
            return self._given.arena, self._plan.offsets[storage]
        tensor = self._outside(storage.kind, storage.key)
        return tensor.buffer, tensor.offset

    def _outside(self, kind: str, key: str) -> Tensor:
        if kind == "index":
            return self._given.indices[key].device
        if kind == "weight":
            dense = self._given.weights[key].dense
            if dense is None:
                raise ValueError(f"weight '{key}' has no plain tensor, though its spec says so")
            return dense
        if kind == "cache":
            layer, half = key.split(".")
            view = self._given.caches[int(layer)]
            return view.k if half == "k" else view.v
        if kind == "state":
            return self._given.states[key]
        return self._given.inputs[key] if kind == "input" else self._given.constants[key]
