"""Bound programs by size, kept for the next step of the same sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from anychip.contract.operators import CallSpec, Implementation, Launch
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.ops.bind import ArenaTooSmall, BoundProgram, Operands, bind
from anychip.run.model_plan import Decide, ModelPlan, trace_step
from anychip.run.sizes import KEPT, Sizes


@dataclass(frozen=True, slots=True)
class KeptCall:
    """What is kept of a bound call. Its tensors are not: hundreds of small objects a program, of
    which a server keeps hundreds, and the launch has what it needs of them."""

    spec: CallSpec
    implementation: Implementation
    launch: Launch


def kept_calls(bound: BoundProgram) -> tuple[KeptCall, ...]:
    """The calls of a program, without their tensors."""
    return tuple(KeptCall(c.call.spec, c.implementation, c.launch) for c in bound.calls)


@dataclass(frozen=True)
class StepProgram:
    """One step ready to run: its launches (one where the chip captures), tokens and logits.

    calls, results: of the bound program. late: those launches that read the masks; they begin
    with call `late_from`, None where there are none.
    """

    launches: tuple[Launch, ...]
    tokens: Tensor
    logits: Tensor
    calls: tuple[KeptCall, ...]
    results: dict[str, Tensor]
    late: tuple[Launch, ...] = ()
    late_from: int | None = None

    def run(self) -> None:
        """Queue the step, but for what is late."""
        for launch in self.launches:
            launch()

    def run_late(self) -> None:
        """Queue the rest, behind the masks."""
        for launch in self.late:
            launch()


class Programs:
    """Traces and binds on first use; the least recently used are forgotten beyond KEPT."""

    def __init__(
        self,
        plan: ModelPlan,
        chip: Chip,
        decide: Decide,
        *,
        operands: Callable[[Sizes], Operands],
        grow: Callable[[ArenaTooSmall], None],
    ) -> None:
        """operands: what a program of these sizes is given. grow: finds it a larger arena."""
        self._plan, self._chip, self._decide = plan, chip, decide
        self._operands, self._grow = operands, grow
        self._kept: OrderedDict[Sizes, StepProgram] = OrderedDict()
        self._last: tuple[Sizes, StepProgram] | None = None

    def get(self, sizes: Sizes) -> StepProgram:
        """The program of these sizes: mostly that of the step before."""
        if self._last is not None and self._last[0] == sizes:
            return self._last[1]
        program = self._kept.get(sizes)
        if program is None:
            program = self._kept[sizes] = self._make(sizes)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(sizes)
        self._last = sizes, program
        return program

    def forget(self) -> None:
        """Bind all anew: what they are given lies elsewhere now."""
        self._kept.clear()
        self._last = None

    def _make(self, sizes: Sizes) -> StepProgram:
        operands = self._operands(sizes)
        slots = operands.slots
        traced = trace_step(self._plan, sizes, operands.pages, self._decide, slots=slots)
        try:
            bound = bind(traced, operands, self._chip.memory)
        except ArenaTooSmall as error:
            self._grow(error)
            bound = bind(traced, self._operands(sizes), self._chip.memory)
        split = len(bound.calls) if traced.late_from is None else traced.late_from
        early, late = self._captured(bound.launches[:split]), self._captured(bound.launches[split:])
        found, calls = bound.results, kept_calls(bound)
        tokens, logits = found["tokens"], found["logits"]
        return StepProgram(early, tokens, logits, calls, found, late, traced.late_from)

    def _captured(self, launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
        if self._chip.capture is None or not launches:
            return launches
        return (self._chip.capture.capture(launches),)
