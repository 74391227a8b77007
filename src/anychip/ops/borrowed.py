"""Borrowed operators: a call whose memory is on one chip, computed by another.

The lender serves a call as it would serve its own: natively, or by its recipe. Operands are
copied to it and results back; it computes with its own copy of each weight. Slow, and made for
one question: whose implementation is it that changes the text?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from anychip.contract.cache import KNOWN_LAYOUTS, CacheSpec
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, CallSpec, Implementation, Launch
from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer, Tensor
from anychip.contract.weights import Weight, WeightSpec
from anychip.ops.arena import plan_arena
from anychip.ops.bind import bind
from anychip.ops.decide import Decider, Decision, MissingOperator
from anychip.ops.recipe import operands_of, traced
from anychip.ops.staged import Stage, window
from anychip.ops.trace import Ops, Program


@dataclass(frozen=True)
class WeightPairs:
    """The lender's own copies of the borrower's weights.

    weight: the lender's copy of a weight. specs: the lender's specs of all the weights that have
    this spec on the borrower.
    """

    weight: Callable[[Weight], Weight]
    specs: Callable[[WeightSpec], tuple[WeightSpec, ...]]


class Lender:
    """A chip that lends its operators to calls in `near`, another chip's memory.

    Borrowed calls run one after another, so all share the lender's scratch. `release` it.
    """

    def __init__(self, chip: Chip, decider: Decider, near: Memory, pairs: WeightPairs) -> None:
        self._chip, self._decider, self._near, self._pairs = chip, decider, near, pairs
        self._scratch = _Scratch(chip.memory)
        self.nbytes = 0

    def is_native(self, call: CallSpec) -> bool:
        """Whether it would serve the call by one implementation of its own."""
        try:
            programs = list(self._programs(call))
        except MissingOperator:
            return False
        return all([node.spec.op for node in p.nodes] == [call.op] for p in programs)

    def declines(self, call: CallSpec) -> str | None:
        """None where it can serve the call, otherwise the reason."""
        for spec in call.inputs.values():
            if isinstance(spec, CacheSpec) and not self._takes_cache(spec):
                group = spec.group
                return f"pages of {group.page_size} in layout {group.layout} mean nothing to it"
        try:
            list(self._programs(call))
        except MissingOperator as error:
            return str(error)
        return None

    def lend(self, op: str) -> Implementation:
        """An implementation for the borrower. It copies, so it cannot be captured."""
        return Implementation(
            op=op,
            id=f"borrowed.{op}",
            prepare=self._prepare,
            when=self.declines,
            reads_host=True,
            latent=True,
        )

    def release(self) -> None:
        """Give the scratch back; launches prepared before must not run any more."""
        self._scratch.release()

    def _takes_cache(self, spec: CacheSpec) -> bool:
        facts = self._chip.capabilities()
        known = {facts.cache_layout, spec.group.layout} <= set(KNOWN_LAYOUTS)
        return known and spec.group.page_size in facts.page_sizes

    def _programs(self, call: CallSpec) -> Iterator[Program]:
        """The call on the lender, for every combination of weights that it may be made with."""
        weights = {n: s for n, s in call.inputs.items() if isinstance(s, WeightSpec)}
        for found in product(*map(self._pairs.specs, weights.values())):
            yield self._trace(call, dict(zip(weights, found, strict=True)))

    def _trace(self, call: CallSpec, weights: Mapping[str, WeightSpec]) -> Program:
        lent = replace(call, inputs={**call.inputs, **weights})
        return traced(Ops(self._decider), lent)

    def _prepare(self, call: Call) -> Launch:
        place = _LenderPlace(self._chip.memory, self._scratch, self._pairs)
        stage = Stage(self._near, place, self._moved)
        operands = operands_of(stage.operands(call.inputs), Buffer(None, 0))
        weights = {name: weight.spec for name, weight in operands.weights.items()}
        program = self._trace(call.spec, weights)
        operands.arena = self._scratch.take("arena", plan_arena(program).nbytes)
        bound = bind(program, operands, self._chip.memory)

        def run() -> None:
            for launch in bound.launches:
                launch()

        return stage.launch(call, run, bound.results)

    def _moved(self, nbytes: int) -> None:
        self.nbytes += nbytes


@dataclass
class Borrowing:
    """Decides as the borrower does, but for the operators in `borrowed`: the lender has those."""

    own: Decider
    lender: Lender
    borrowed: frozenset[str] = frozenset()

    def __call__(self, call: CallSpec) -> Decision:
        """Raises MissingOperator."""
        if call.op not in self.borrowed:
            return self.own(call)
        implementation = self.lender.lend(call.op)
        reason = implementation.when(call)
        if reason is not None:
            raise MissingOperator(call, (f"the lender declines: {reason}",))
        return Decision(implementation, ("borrowed",))


@dataclass
class Pieces:
    """Decides like `own`, and notes the pieces of a program that can be borrowed one by one.

    A piece is a call that the borrower or the lender serves by one implementation; what both
    compose is looked into. With all pieces borrowed a program computes what the lender would.
    opened: operators that are looked into as well.
    """

    own: Decider
    lender: Lender
    opened: frozenset[str] = frozenset()
    served: dict[str, dict[str, None]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __call__(self, call: CallSpec) -> Decision:
        """A piece is not looked into. Raises MissingOperator."""
        decision = self.own(call)
        open_it = call.op in self.opened or not self.lender.is_native(call)
        if decision.composed and open_it:
            return decision
        self.served.setdefault(call.op, {})[decision.name] = None
        reason = self.lender.declines(call)
        if reason is not None:
            self.kept[call.op] = reason
        return Decision(self.lender.lend(call.op))


class _Scratch:
    """Memory of the lender that every borrowed call uses again: the largest asked for so far."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: list[Buffer] = []
        self._largest: dict[str, Buffer] = {}

    def take(self, key: str, nbytes: int) -> Buffer:
        """At least `nbytes`; calls prepared before keep the smaller one."""
        buffer = self._largest.get(key)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._largest[key] = self._memory.allocate(nbytes)
            self._held.append(buffer)
        return buffer

    def release(self) -> None:
        """Free all."""
        for buffer in self._held:
            self._memory.free(buffer)
        self._held.clear()
        self._largest.clear()


class _LenderPlace:
    """The lender's memory, for the operands of one call."""

    def __init__(self, memory: Memory, scratch: _Scratch, pairs: WeightPairs) -> None:
        self._memory, self._scratch, self._pairs = memory, scratch, pairs
        self._taken = 0

    def allocate(self, nbytes: int) -> Buffer:
        self._taken += 1
        return self._scratch.take(str(self._taken), nbytes)

    def weight(self, weight: Weight, stage: Stage) -> Weight:
        return self._pairs.weight(weight)

    def put(self, target: Tensor, read: Callable[[memoryview], None]) -> None:
        between = memoryview(bytearray(target.extent_bytes))
        read(between)
        self._memory.copy_in(window(target), between)

    def get(self, source: Tensor) -> memoryview:
        between = memoryview(bytearray(source.extent_bytes))
        self._memory.copy_out(window(source), between)
        return between
