"""Runs plans: page tables, index arrays, the program of the step's sizes, tokens back."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from anychip.contract.registration import Chip
from anychip.contract.tensor import Buffer
from anychip.ops.bind import ArenaTooSmall, Operands
from anychip.ops.host import HostTraffic
from anychip.plan import NOT_EMITTED, NOT_SAMPLED, CacheLimits, Row, StepPlan, StepResult
from anychip.run.batch import Staging, one_logit_each
from anychip.run.cache import allocate_cache, allocate_states, free_cache, free_states
from anychip.run.choosing import Shapes, read_logprobs, share_out
from anychip.run.host_pages import HostPages
from anychip.run.memory_plan import StepLimits, largest_sizes
from anychip.run.model_plan import Decide, ModelPlan
from anychip.run.plain_steps import Ready, Written
from anychip.run.programs import Programs, StepProgram
from anychip.run.run_meter import RunMeter
from anychip.run.sections import Layout, staging_words
from anychip.run.sizes import Sizes, plain_sizes, sizes_of
from anychip.run.tables import PageTables
from anychip.run.timed_run import TellCall, TimedSteps, run_timed
from anychip.run.watched import StepWatch, WatchedMemory, Watching, in_place
from anychip.run.weights import DeviceWeights

if TYPE_CHECKING:
    from anychip.run.check import StepChecker

log = logging.getLogger("anychip.engine")


class Runner:
    """One model on one chip; owns the weights from here on. The engine's thread alone calls it.

    checker: where it is set, every step is checked. shapes: what shapes logits; as it is made, it
    knows no grammar. timed: which steps run call by call; as it is made, none. watching: who is
    told what it does.
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
        self._page_size, self._most_pages = plan.group.page_size, plan.most_pages
        self.watching = Watching()
        self._unwatched = chip.memory
        self._memory = WatchedMemory(chip.memory, self.watching)
        self._tables = PageTables(limits.max_running, plan.most_pages)
        steps = StepLimits(limits.max_running, limits.step_tokens)
        self._largest = max(largest_sizes(plan, steps), key=staging_words)
        with ExitStack() as stack:
            stack.callback(weights.release, chip)
            self._arena: Buffer = chip.memory.allocate(arena)
            stack.callback(chip.memory.free, self._arena)
            self._staging = self._stage(stack)
            self._caches = allocate_cache(chip.memory, plan.group, limits.pages + 1)
            stack.callback(free_cache, chip.memory, self._caches)
            self._states = allocate_states(chip.memory, plan.states, limits.state_slots)
            stack.callback(free_states, chip.memory, self._states)
            self._host_pages = HostPages(self._memory, self._caches, limits.host_slots)
            self._allocated = stack.pop_all()
        self._programs = Programs(
            plan, chip, decide, operands=self._operands, grow=self._grow_arena
        )
        self._sampled = [0] * limits.max_running  # by slot, but for the step before
        self._before: tuple[tuple[Row, ...], Sequence[int]] = (), ()  # that one's
        self._begun: StepPlan | None = None  # the last one whose numbers are on their way
        self._written: Written | None = None
        self._tokens = memoryview(array("i", [0] * self._largest.samples))
        self._drawn = self._tokens[:0]  # those of the step before, in the order of its rows
        self._ready: Ready | None = None
        self.host_traffic = HostTraffic()
        self.meter = RunMeter(chip.memory, self.host_traffic)
        self.timed = TimedSteps()
        self.last: StepProgram | None = None
        self.checker: StepChecker | None = None
        self.shapes = Shapes(plan.config.vocab_size, frozenset(plan.config.eos_ids), None)

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step and wait for its tokens. Raises ChipError."""
        begun, watch = time.monotonic(), self.watching.watch
        try:
            if plan.moves:
                self._host_pages.run(plan.moves)
            if plan.plain:
                return self._run_plain(plan, begun, watch)
            return self._run_shaped(plan, begun, watch)
        finally:
            if watch is not None:
                watch.step(plan, begun, time.monotonic())

    def _run_plain(self, plan: StepPlan, begun: float, watch: StepWatch | None) -> StepResult:
        """What most steps are, one like the one before, and what the next one waits for.

        All that it needs is in here: behind a step, whose weights went through the caches, each
        function that is called has its code fetched from memory.
        """
        written = self._written
        if written is None or written.plan is not plan:
            written = self._write(plan, self._begun)
        layout, ready = written.layout, self._ready
        layout.source[:] = layout.ahead
        if written.goes_on:
            layout.tokens[:] = self._drawn
        elif written.previous:
            written.take_over(self._by_slot())
        self._begun, launched = plan, time.monotonic()
        whole = watch is None and self.checker is None and self.timed.left != 1
        if whole and ready is not None and ready.layout is layout:
            self.timed.left -= 1
            if layout.target is not None:
                self._unwatched.copy_in(layout.target, layout.source)
            for launch in ready.program.launches:
                launch()
            if ready.copied is not None:
                self._unwatched.copy_out(ready.program.tokens, ready.copied)
            self.last, self._drawn = ready.program, ready.drawn
        else:
            self._run_anew(plan, written, watch)
        read, tokens = time.monotonic(), tuple(self._drawn)
        self._before = plan.rows, tokens
        if min(tokens) < 0:  # no number to choose by: the next step may be on its way already
            self._before = plan.rows, usable(tokens)
            self._drawn = memoryview(array("i", self._before[1]))
        figures, now = self.meter.figures, time.monotonic()
        figures.seconds += now - begun
        figures.chip_seconds += read - launched
        if now >= self.meter.looks_at:
            self.meter.look(now)
        return StepResult(tokens=tokens)

    def stage(self, plan: StepPlan) -> None:
        """Write the numbers of a step that `run` is given next, where that can be done already.

        May be called from another thread than `run`, while that runs the step before: what that
        one is staged with is on its way then, and only its tokens are missing.
        """
        begun = self._begun
        if plan.plain and begun is not None and begun.step + 1 == plan.step:
            self._written = self._write(plan, begun)

    def _write(self, plan: StepPlan, before: StepPlan | None) -> Written:
        if plan.changes:
            self._tables.apply(plan.changes)
        sizes = plain_sizes(plan, self._page_size, self._most_pages)
        return self._staging.plain.write(plan, sizes, before)

    def _run_anew(self, plan: StepPlan, written: Written, watch: StepWatch | None) -> None:
        """The plain step that is written, where it is not one more like the last, or looked at."""
        layout, sizes = written.layout, written.sizes
        self._staging.send(layout)
        program = self.last = self._compute(plan, sizes, watch)
        self._drawn = self._read_tokens(program, sizes)
        self.meter.follow(self.shapes, self.timed)
        if self.checker is None and not self.host_traffic.calls:
            self._ready = self._ready_for(layout, program)

    def _ready_for(self, layout: Layout, program: StepProgram) -> Ready:
        there = in_place(self._memory, program.tokens)
        if there is not None:
            return Ready(layout, program, there.cast("i"), None)
        drawn = memoryview(array("i", self._drawn))
        return Ready(layout, program, drawn, drawn.cast("B"))

    def _run_shaped(self, plan: StepPlan, begun: float, watch: StepWatch | None) -> StepResult:
        """One that is not plain."""
        if plan.changes:
            self._tables.apply(plan.changes)
        sizes = self._fill_shaped(plan)
        self._begun, launched = plan, time.monotonic()
        program = self.last = self._compute(plan, sizes, watch)
        drawn = self._read_tokens(program, sizes).tolist()
        read = time.monotonic()
        tokens = emitted(plan, tokens_of_rows(plan, drawn))
        self._before = plan.rows, usable(tokens)
        result = self._result(plan, program, sizes, tokens)
        self.meter.follow(self.shapes, self.timed)
        self.meter.ran(begun, read - launched)
        return result

    def _by_slot(self) -> list[int]:
        """The tokens of the step before, as `usable` has them."""
        rows, tokens = self._before
        for row, token in zip(rows, tokens, strict=True):
            self._sampled[row.slot] = token
        return self._sampled

    def _fill_shaped(self, plan: StepPlan) -> Sizes:
        """Fill the index arrays of a step some of whose logits may be shaped."""
        self.shapes.begin(plan)
        entries = self.shapes.entries(plan)
        sizes = sizes_of(
            plan,
            self._page_size,
            self._most_pages,
            entries=len(entries.rows),
            mask_words=self.shapes.mask_words(plan),
        )
        if sizes.choice.entries > self._largest.choice.entries:
            self._grow_staging(sizes.choice.entries)
        self._staging.fill(plan, sizes, self._by_slot(), entries)
        return sizes

    def _compute(self, plan: StepPlan, sizes: Sizes, watch: StepWatch | None) -> StepProgram:
        masks = None
        if sizes.choice.mask_words:
            masks = self.shapes.make_masks(plan, sizes, self._staging)
        if self.checker is not None:
            self._copy_masks(masks, sizes)
            return self.checker.step(sizes, self._operands(sizes), plan.step)
        program = self._programs.get(sizes)
        told = None
        if watch is not None or self.timed.every:
            told = self._wants_operators(watch)
        if told is not None:
            run_timed(program, self._chip.queue, partial(self._copy_masks, masks, sizes), told)
        else:
            program.run()
            if masks is not None:
                self._copy_masks(masks, sizes)
                program.run_late()
        return program

    def _wants_operators(self, watch: StepWatch | None) -> TellCall | None:
        """Who is told of each operator of this step; None, mostly: nobody."""
        if watch is not None and watch.operators:
            return watch.operator
        return self.timed.told if self.timed.is_due() else None

    def _copy_masks(self, masks: Future[None] | None, sizes: Sizes) -> None:
        if masks is not None:
            masks.result()
            self._staging.copy_masks(sizes)

    def _result(
        self, plan: StepPlan, program: StepProgram, sizes: Sizes, tokens: tuple[int, ...]
    ) -> StepResult:
        if sizes.choice.top < 0 and not any(row.shaped for row in plan.rows):
            return StepResult(tokens=tokens)
        forced, errors = self.shapes.take(plan, tokens)
        if sizes.choice.top < 0:
            return StepResult(tokens=tokens, forced=forced, errors=errors)
        logprobs, scores = share_out(plan, read_logprobs(program, self._memory))
        return StepResult(
            tokens=tokens, forced=forced, errors=errors, logprobs=logprobs, scores=scores
        )

    def _read_tokens(self, program: StepProgram, sizes: Sizes) -> memoryview[int]:
        """What each logit row sampled, until the next step."""
        tokens = self._tokens[: sizes.samples]
        if sizes.samples:
            self._memory.copy_out(program.tokens, tokens.cast("B"))
        else:
            self._chip.queue.synchronize(None)
        return tokens

    def _grow_arena(self, error: ArenaTooSmall) -> None:
        """Plans bound before keep the old arena, so it stays. Raises ChipError (out of memory)."""
        log.warning("%s; taking more from the headroom", error)
        self._arena = self._chip.memory.allocate(error.needed)
        self._allocated.callback(self._chip.memory.free, self._arena)

    def _stage(self, owner: ExitStack) -> Staging:
        memory, states = self._memory, self._plan.states is not None
        staging = Staging(memory, self._largest, self._tables, self._page_size, states=states)
        owner.callback(memory.free, staging.buffer)
        return staging

    def _grow_staging(self, entries: int) -> None:
        """Requests single out more tokens than was planned for. Raises ChipError (out of memory).

        What programs hold of the old words is forgotten with them; those words stay.
        """
        log.warning("a step changes up to %d logits; taking more from the headroom", entries)
        choice = self._largest.choice._replace(entries=entries)
        self._largest = self._largest._replace(choice=choice)
        self._staging = self._stage(self._allocated)
        self._programs.forget()
        self._ready = None

    def _operands(self, sizes: Sizes) -> Operands:
        return Operands(
            arena=self._arena,
            indices=self._staging.indices(sizes),
            inputs=self._staging.inputs(sizes),
            constants=self._weights.constants,
            weights=self._weights.weights,
            caches=self._caches,
            states=self._states,
            traffic=self.host_traffic,
        )

    def close(self) -> None:
        """Give back the device's memory, the weights included; tell what was counted."""
        self.shapes.close()
        self._ready, self._drawn = None, self._tokens[:0]  # or they would keep the memory
        traffic = self.host_traffic
        if traffic.calls:
            log.info("host operators: %d calls, %d bytes moved", traffic.calls, traffic.nbytes)
        if self.checker is not None:
            log.log(self.checker.counts.level, "%s", self.checker.counts)
            self._allocated.callback(self.checker.close)
        self._allocated.close()


def emitted(plan: StepPlan, tokens: list[int]) -> tuple[int, ...]:
    """The tokens that go on: those that rows name, else what they sampled. A row that found no
    number to choose by stays so: the model's failure is not papered over."""
    return tuple(
        token if row.emit == NOT_EMITTED or token == NOT_SAMPLED else row.emit
        for row, token in zip(plan.rows, tokens, strict=True)
    )


def usable(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """What the next step may compute with: token 0 where a row sampled none. Such a request has
    ended, its row in a step that is planned already is surplus, and its neighbours are not.
    """
    return tokens if min(tokens) >= 0 else tuple(max(token, 0) for token in tokens)


def tokens_of_rows(plan: StepPlan, drawn: list[int]) -> list[int]:
    """The token that each row sampled, or NOT_SAMPLED, out of those of all logit rows."""
    if one_logit_each(plan.rows):
        return drawn
    found, index = [], 0
    for row in plan.rows:
        index += row.logit_rows
        found.append(drawn[index - 1] if row.sample else NOT_SAMPLED)
    return found
