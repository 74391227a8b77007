"""The logits of every position of a text, by the engine's own step on a chip.

A server computes them for the last token of a prompt alone. Here the step is traced with as many
sampling rows as it has tokens; operators, weights, caches and chunks are those of serving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from anychip.contract.tensor import Buffer
from anychip.engine.loaded import LoadedModel
from anychip.ops.arena import plan_arena
from anychip.ops.bind import ArenaTooSmall, Operands
from anychip.plan import Row, StepPlan, TableChange
from anychip.run.batch import Staging
from anychip.run.cache import allocate_cache, allocate_states, free_cache, free_states
from anychip.run.model_plan import trace_step
from anychip.run.programs import Programs
from anychip.run.sizes import Sizes, table_width
from anychip.run.tables import PageTables

Logits = npt.NDArray[np.float32]


NOTHING_SAMPLED = np.zeros(1, np.int32)


class WholeLogits:
    """One sequence at a time, from its start. Use it as a context manager, within the model's.

    context: most tokens of a sequence. chunk: tokens of a step. Raises ChipError.
    """

    def __init__(self, model: LoadedModel, context: int, chunk: int) -> None:
        self._opened, self._chunk = model.opened, chunk
        plan, chip = self._opened.plan, self._opened.chip
        group, memory = plan.group, chip.memory
        pages = -(-context // group.page_size)
        tables = PageTables(1, plan.most_pages)
        tables.apply([TableChange(slot=0, first=0, pages=tuple(range(1, pages + 1)))])
        largest = self._sizes(min(chunk, context), context)
        scratch = plan_arena(trace_step(plan, largest, pages + 1, self._opened.decider)).nbytes
        with ExitStack() as stack:
            self._arena = self._allocated(stack, scratch)
            states = plan.states is not None
            self._staging = Staging(memory, largest, tables, group.page_size, states=states)
            stack.callback(memory.free, self._staging.buffer)
            caches = allocate_cache(memory, group, pages + 1)
            stack.callback(free_cache, memory, caches)
            held = allocate_states(memory, plan.states, 2)  # the sink, and the sequence's own
            stack.callback(free_states, memory, held)
            self._stack = stack.pop_all()

        def operands(sizes: Sizes) -> Operands:
            return Operands(
                arena=self._arena,
                indices=self._staging.indices(sizes),
                inputs=self._staging.inputs(sizes),
                constants=model.weights.constants,
                weights=model.weights.weights,
                caches=caches,
                states=held,
            )

        self._programs = Programs(
            plan, chip, self._opened.decider, operands=operands, grow=self._grow
        )

    def __enter__(self) -> WholeLogits:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def of(self, tokens: Sequence[int]) -> Iterator[Logits]:
        """Float32 [T, V] of each chunk in order: what should follow each of its positions."""
        for start in range(0, len(tokens), self._chunk):
            yield self._step(tuple(tokens[start : start + self._chunk]), start)

    def _step(self, tokens: tuple[int, ...], start: int) -> Logits:
        sizes = self._sizes(len(tokens), start + len(tokens))
        row = Row(slot=0, tokens=tokens, start=start, sample=True, state_from=1, state_to=1)
        self._staging.fill(StepPlan(step=0, rows=(row,)), sizes, NOTHING_SAMPLED)
        self._sample_everywhere(sizes)
        program = self._programs.get(sizes)
        program.run()
        found = np.zeros(program.logits.shape, np.float32)
        self._opened.chip.memory.copy_out(program.logits, found.reshape(-1).view(np.uint8).data)
        return found

    def _sample_everywhere(self, sizes: Sizes) -> None:
        """`last` as it was staged names the row's last token alone, once for each sample."""
        last = self._staging.indices(sizes)["last"]
        np.frombuffer(last.host, np.int32)[:] = np.arange(sizes.samples, dtype=np.int32)
        self._opened.chip.memory.copy_in(last.device, last.host)

    def _sizes(self, tokens: int, end: int) -> Sizes:
        plan = self._opened.plan
        pages = table_width(-(-end // plan.group.page_size), plan.most_pages)
        return Sizes(tokens, 1, tokens, pages)

    def _allocated(self, stack: ExitStack, nbytes: int) -> Buffer:
        memory = self._opened.chip.memory
        buffer = memory.allocate(nbytes)
        stack.callback(memory.free, buffer)
        return buffer

    def _grow(self, error: ArenaTooSmall) -> None:
        self._arena = self._allocated(self._stack, error.needed)
