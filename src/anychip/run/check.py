"""Checked steps: the operators of a step against the oracle, fused rungs unrolled on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anychip.contract.registration import Chip
from anychip.contract.weights import Weight
from anychip.hostops.views import Array
from anychip.ops.bind import Operands, bind
from anychip.ops.checked import CheckedRun, Divergence
from anychip.ops.decide import Decider
from anychip.run.model_plan import ModelPlan, trace_step
from anychip.run.programs import StepProgram
from anychip.run.sizes import Sizes

DenseByName = Callable[[str], Array]


class StepChecker:
    """Checks steps of one model. dense: float weights by name, from the checkpoint."""

    def __init__(self, plan: ModelPlan, chip: Chip, decider: Decider, dense: DenseByName) -> None:
        self._plan, self._chip, self._decider, self._dense = plan, chip, decider, dense
        self.divergences: list[Divergence] = []
        self.checked = 0

    def step(self, sizes: Sizes, operands: Operands) -> StepProgram:
        """Run one step, checked. A diverging fused operator is unrolled and the step run again:
        writing the same keys and values to the same slots twice changes nothing."""
        decider = self._decider
        while True:
            program = self._bind(sizes, operands, decider)
            run = CheckedRun(self._chip.memory, self._reader(operands))
            found = run.run(program.bound)
            self.checked += run.checked
            if found is not None:
                self.divergences.append(found)
            if found is None or not found.is_fused:
                return program
            decider = replace(decider, denied=decider.denied | {found.op})

    def _reader(self, operands: Operands) -> Callable[[Weight], Array]:
        names = {id(weight): name for name, weight in operands.weights.items()}
        return lambda weight: self._dense(names[id(weight)])

    def _bind(self, sizes: Sizes, operands: Operands, decider: Decider) -> StepProgram:
        pages = operands.caches[0].spec.pages
        bound = bind(trace_step(self._plan, sizes, pages, decider), operands, self._chip.memory)
        results = bound.results
        return StepProgram(bound.launches, results["tokens"], results["logits"], bound)
