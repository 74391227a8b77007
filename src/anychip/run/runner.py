"""Runs plans: page tables, index arrays, the program of the step's sizes, tokens back."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer
from anychip.ops.bind import ArenaTooSmall, Operands
from anychip.ops.host import HostTraffic
from anychip.plan import NOT_SAMPLED, CacheLimits, StepPlan, StepResult
from anychip.run.batch import Staging
from anychip.run.cache import allocate_cache, free_cache
from anychip.run.host_pages import HostPages
from anychip.run.memory_plan import StepLimits, largest_sizes
from anychip.run.model_plan import Decide, ModelPlan
from anychip.run.programs import Programs, StepProgram
from anychip.run.sizes import Sizes, sizes_of
from anychip.run.tables import PageTables
from anychip.run.weights import DeviceWeights

if TYPE_CHECKING:
    from anychip.run.check import StepChecker

log = logging.getLogger("anychip.engine")


class Runner:
    """One model on one chip; owns the weights from here on. The engine's thread alone calls it.

    checker: where it is set, every step is checked.
    """

    def __init__(
        self,
        chip: Chip,
        plan: ModelPlan,
        weights: DeviceWeights,
        limits: CacheLimits,
        *,
        arena: int,
        decide: Decide,
    ) -> None:
        """arena: bytes of scratch, from `memory_plan.workspace_bytes`. Raises ChipError."""
        self._chip, self._plan, self._weights = chip, plan, weights
        self._tables = PageTables(limits.max_running, plan.most_pages)
        steps = StepLimits(limits.max_running, limits.step_tokens)
        largest = max(largest_sizes(plan, steps), key=lambda s: s.tokens + s.rows)
        with ExitStack() as stack:
            stack.callback(weights.release, chip)
            self._arena: Buffer = chip.memory.allocate(arena)
            stack.callback(chip.memory.free, self._arena)
            self._staging = Staging(chip.memory, largest, self._tables, plan.group.page_size)
            stack.callback(chip.memory.free, self._staging.buffer)
            self._caches = allocate_cache(chip.memory, plan.group, limits.pages + 1)
            stack.callback(free_cache, chip.memory, self._caches)
            self._host_pages = HostPages(chip.memory, self._caches, limits.host_slots)
            self._allocated = stack.pop_all()
        self._programs = Programs(
            plan, chip, decide, operands=self._operands, grow=self._grow_arena
        )
        self._sampled = np.zeros(limits.max_running, np.int32)  # by slot, in the step before
        self._drawn = np.zeros(limits.max_running, np.int32)
        self.host_traffic = HostTraffic()
        self.last: StepProgram | None = None
        self.checker: StepChecker | None = None

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step and wait for its tokens. Raises ChipError."""
        self._host_pages.run(plan.moves)
        self._tables.apply(plan.changes)
        sizes = sizes_of(plan, self._plan.group.page_size, self._plan.most_pages)
        self._staging.fill(plan, sizes, self._sampled)
        program = self._compute(sizes, plan.step)
        self.last = program
        drawn = iter(self._read_tokens(program, sizes))
        tokens = tuple(next(drawn) if row.sample else NOT_SAMPLED for row in plan.rows)
        self._sampled[[row.slot for row in plan.rows]] = tokens
        return StepResult(tokens=tokens)

    def _compute(self, sizes: Sizes, step: int) -> StepProgram:
        if self.checker is not None:
            return self.checker.step(sizes, self._operands(sizes), step)
        program = self._programs.get(sizes)
        program.run()
        return program

    def _read_tokens(self, program: StepProgram, sizes: Sizes) -> list[int]:
        tokens = self._drawn[: sizes.samples]
        if sizes.samples:
            self._chip.memory.copy_out(program.tokens, tokens.data)
        else:
            self._chip.queue.synchronize(None)
        found: list[int] = tokens.tolist()
        return found

    def _grow_arena(self, error: ArenaTooSmall) -> None:
        """Plans bound before keep the old arena, so it stays. Raises ChipError (out of memory)."""
        log.warning("%s; taking more from the headroom", error)
        self._arena = self._chip.memory.allocate(error.needed)
        self._allocated.callback(self._chip.memory.free, self._arena)

    def _operands(self, sizes: Sizes) -> Operands:
        return Operands(
            arena=self._arena,
            indices=self._staging.indices(sizes),
            inputs=self._staging.inputs(sizes),
            constants=self._weights.constants,
            weights=self._weights.weights,
            caches=self._caches,
            traffic=self.host_traffic,
        )

    def close(self) -> None:
        """Give back the device's memory, the weights included; tell what was counted."""
        traffic = self.host_traffic
        if traffic.calls:
            log.info("host operators: %d calls, %d bytes moved", traffic.calls, traffic.nbytes)
        if self.checker is not None:
            log.log(self.checker.counts.level, "%s", self.checker.counts)
            self._allocated.callback(self.checker.close)
        self._allocated.close()
