"""Checked steps: the operators of a step against the oracle, fused rungs unrolled on failure."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer
from anychip.ops.bind import ArenaTooSmall, BoundProgram, Operands, bind
from anychip.ops.check import Verdict
from anychip.ops.checked import CheckedRun, Divergence, Kind, keep_worst
from anychip.ops.decide import Decider, MissingOperator
from anychip.ops.trace import Program
from anychip.run.dense import DenseByName, PartsByName
from anychip.run.model_plan import ModelPlan, trace_step
from anychip.run.programs import StepProgram, kept_calls
from anychip.run.sizes import Sizes

__all__ = ["CheckCounts", "DenseByName", "Found", "StepChecker"]


TELL_EVERY_S = 5.0
"""Seconds of checking between two lines of the log."""

log = logging.getLogger("anychip.engine")


@dataclass(frozen=True)
class Found:
    """The first divergence of an operator's implementation. step: the plan's number.

    unrolled: of a fused operator, what its parts showed; otherwise empty. kept: where its call
    was saved and what to do with it.
    """

    step: int
    divergence: Divergence
    unrolled: str = ""
    kept: str = ""

    def __str__(self) -> str:
        tail = f"; unrolled: {self.unrolled}" if self.unrolled else ""
        return f"step {self.step}, {self.divergence}{tail}"


@dataclass
class CheckCounts:
    """Calls since the start. diverged: by operator and implementation; inconclusive: by operator,
    calls whose check could not have failed. worst: the largest error of each kind."""

    checked: int = 0
    diverged: Counter[Kind] = field(default_factory=Counter)
    inconclusive: Counter[str] = field(default_factory=Counter)
    worst: dict[Kind, Verdict] = field(default_factory=dict)

    def add(self, run: CheckedRun) -> None:
        """Count a run that is over."""
        self.checked += run.checked
        self.diverged += run.diverged
        self.inconclusive += run.inconclusive
        for kind, verdict in run.worst.items():
            keep_worst(self.worst, kind, verdict)

    @property
    def level(self) -> int:
        """How the log ranks these counts."""
        return logging.WARNING if self.diverged else logging.INFO

    def __str__(self) -> str:
        names = [
            f"{op} ({implementation}, {n})"
            for (op, implementation), n in self.diverged.most_common()
        ]
        verb = "operator diverges" if len(names) == 1 else "operators diverge"
        text = f"checked {self.checked} calls: "
        text += f"{len(names)} {verb}: {', '.join(names)}" if names else "none diverges"
        if self.inconclusive:
            ops = ", ".join(sorted(self.inconclusive))
            text += f"; {self.inconclusive.total()} checks were inconclusive ({ops}): "
            text += "they have no input whose change would show"
        return text


class StepChecker:
    """Checks steps of one model. dense: float weights by name, from the checkpoint.

    found: the first divergence of each kind, in the order in which they were met. keep: takes
    each of them, and says what became of it.
    """

    def __init__(
        self,
        plan: ModelPlan,
        chip: Chip,
        decider: Decider,
        dense: DenseByName,
        parts: PartsByName | None = None,
    ) -> None:
        """parts: what each weight was prepared from, so that a saved call packs it again."""
        self._plan, self._chip, self._decider = plan, chip, decider
        self._dense, self._parts = dense, parts
        self._scratch, self._pace = _Scratch(chip), _Pace()
        self.keep: Callable[[Found], str] = lambda found: ""
        self.counts = CheckCounts()
        self.found: dict[Kind, Found] = {}

    @property
    def divergences(self) -> list[Divergence]:
        """The first of each kind."""
        return [found.divergence for found in self.found.values()]

    @property
    def checked(self) -> int:
        """Calls so far."""
        return self.counts.checked

    def step(self, sizes: Sizes, operands: Operands, number: int = 0) -> StepProgram:
        """Run one step, checked; its results are the chip's own. number: of the plan.

        A fused operator that diverges for the first time is unrolled, the step run again, and
        then once more as it was: the same keys and values go to the same slots each time. Not so
        where layers keep a state, which would go on from what the first run left.
        """
        begun = time.monotonic()
        program = self._bind(self._trace(sizes, operands, self._decider), operands, "whole")
        run = self._run(operands, program)
        new = [found for kind, found in run.first.items() if kind not in self.found]
        notes = {d.op: self._parts_of(d.op, sizes, operands, run) for d in new if d.is_fused}
        if notes and not operands.states:
            for launch in program.launches:
                launch()
        for divergence in new:
            found = Found(number, divergence, notes.get(divergence.op, ""))
            self.found[divergence.kind] = replace(found, kept=self.keep(found))
        self._pace.tell(number, self.checked, time.monotonic() - begun)
        results = program.results
        tokens, logits, calls = results["tokens"], results["logits"], kept_calls(program)
        return StepProgram(program.launches, tokens, logits, calls, results)

    def close(self) -> None:
        """Give back the scratch."""
        self._scratch.close()

    def _parts_of(self, op: str, sizes: Sizes, operands: Operands, whole: CheckedRun) -> str:
        """Run the step with the recipe of `op` in its place; what that shows beyond `whole`."""
        if operands.states:
            return "not possible: the step would go on from the recurrent state that it left"
        choices = {name: choice for name, choice in self._decider.choices.items() if name != op}
        decider = replace(self._decider, choices=choices, denied=self._decider.denied | {op})
        try:
            traced = self._trace(sizes, operands, decider)
        except MissingOperator as error:
            return f"not possible: {error}"
        run = self._run(operands, self._bind(traced, operands, "unrolled"))
        new = [found for kind, found in run.first.items() if kind not in whole.first]
        if not new:
            return f"its smaller operators agree with the oracle, so '{op}' itself is wrong"
        return "; ".join(f"its part {found}" for found in new)

    def _run(self, operands: Operands, program: BoundProgram) -> CheckedRun:
        """Run a program, checked and counted."""
        names = {id(weight): name for name, weight in operands.weights.items()}
        parts = self._parts
        run = CheckedRun(
            self._chip.memory,
            lambda weight: self._dense(names[id(weight)]),
            None if parts is None else lambda weight: parts(names[id(weight)]),
        )
        run.run(program)
        self.counts.add(run)
        return run

    def _trace(self, sizes: Sizes, operands: Operands, decider: Decider) -> Program:
        return trace_step(self._plan, sizes, operands.pages, decider, slots=operands.slots)

    def _bind(self, traced: Program, operands: Operands, use: str) -> BoundProgram:
        try:
            return bind(traced, operands, self._chip.memory)
        except ArenaTooSmall as error:  # the plan is for programs that are not unrolled
            arena = self._scratch.of(use, error.needed)
            return bind(traced, replace(operands, arena=arena), self._chip.memory)


class _Pace:
    """A line of the log now and then: checked steps are slow, and silence looks like a hang."""

    def __init__(self) -> None:
        self._seconds = self._told = 0.0

    def tell(self, step: int, calls: int, seconds: float) -> None:
        """A step is over. calls: checked so far; seconds: that this step took."""
        self._seconds += seconds
        if self._seconds - self._told >= TELL_EVERY_S:
            self._told = self._seconds
            log.info("checking: step %d, %s calls so far, %.0f s", step, f"{calls:,}", self._told)


class _Scratch:
    """Arenas of the checker, one a use: a program's results live there until the next step."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._arenas: dict[str, Buffer] = {}

    def of(self, use: str, nbytes: int) -> Buffer:
        """At least that many bytes. Raises ChipError (out of memory)."""
        arena = self._arenas.get(use)
        if arena is None or arena.nbytes < nbytes:
            self._free(use)
            arena = self._arenas[use] = self._chip.memory.allocate(nbytes)
        return arena

    def close(self) -> None:
        """Free all."""
        for use in tuple(self._arenas):
            self._free(use)

    def _free(self, use: str) -> None:
        arena = self._arenas.pop(use, None)
        if arena is not None:
            self._chip.memory.free(arena)
