"""A tiny model on the chip under test: steps made by hand, logits back; and what is right."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import TracebackType

import numpy as np

from anychip.contract.dtype import DType
from anychip.contract.registration import Chip
from anychip.hostops.views import Array
from anychip.model.checkpoint import Checkpoint, open_checkpoint
from anychip.model.tiny import write_tiny
from anychip.ops.check import relative_l2
from anychip.ops.composed_error import MULTIPLE
from anychip.ops.decide import Decider
from anychip.ops.limits import ROUNDOFF
from anychip.plan import CacheLimits, Row, StepPlan, TableChange
from anychip.run.check import StepChecker
from anychip.run.dense import dense_reader
from anychip.run.memory_plan import StepLimits, workspace_bytes
from anychip.run.model_plan import ModelPlan, ModelWishes, plan_model, state_group
from anychip.run.reference import composed_logits, reference_logits
from anychip.run.runner import Runner
from anychip.run.weights import load_weights

CONTEXT = 32
"""Positions of a sequence at most."""
SLOTS = 5
STEP_TOKENS = 32
"""Sequences, and tokens of one step, unless the chip takes fewer."""


@dataclass(frozen=True)
class Truth:
    """What follows each position: logits, float64 [T, V]. limit: a sound chip's relative L2."""

    logits: Array
    limit: float

    def answer(self, positions: Sequence[int]) -> Answer:
        """What follows some positions."""
        logits = self.logits[list(positions)]
        return Answer(tuple(positions), logits, tuple(logits.argmax(axis=1).tolist()))


@dataclass(frozen=True)
class Answer:
    """What a chip made of some positions of a sequence: logits [P, V], the greedy tokens [P]."""

    positions: tuple[int, ...]
    logits: Array
    tokens: tuple[int, ...]


@contextmanager
def tiny_checkpoint(format: str) -> Iterator[Checkpoint]:
    """A tiny model with its matrices in `format`; gone with the context."""
    with tempfile.TemporaryDirectory(prefix="anychip-conform-") as folder:
        checkpoint = open_checkpoint(write_tiny(Path(folder), format))
        try:
            yield checkpoint
        finally:
            checkpoint.close()


def plan_for(checkpoint: Checkpoint, chip: Chip, dtype: DType, page_size: int) -> ModelPlan:
    """The model in one dtype, the cache in that too where the chip has it. Raises
    ModelPlanError."""
    return plan_model(checkpoint, chip, ModelWishes(dtype.value, "auto", page_size, CONTEXT))


def cut(plan: ModelPlan, layers: int) -> ModelPlan:
    """The same model with its first layers alone."""

    def kept(name: str) -> bool:
        first, _, rest = name.partition(".")
        return first != "layers" or int(rest.partition(".")[0]) < layers

    config = plan.config.cut(layers)
    return replace(
        plan,
        config=config,
        group=replace(plan.group, layers=len(config.cached_layers)),
        states=state_group(config, plan.dtype),
        weights=tuple(w for w in plan.weights if kept(w.source.name)),
        constants=tuple(s for s in plan.constants if kept(s.name)),
    )


def truth_of(checkpoint: Checkpoint, plan: ModelPlan, tokens: Sequence[int]) -> Truth:
    """The oracle's logits, and MULTIPLE times how far the composed path lies from them: at least
    one rounding of the activations."""
    logits = reference_logits(checkpoint, plan.config, tokens)
    composed = composed_logits(
        checkpoint, plan.config, tokens, plan.dtype, cache_dtype=plan.group.dtype
    )
    error = max(relative_l2(logits, composed), ROUNDOFF[plan.dtype])
    return Truth(logits, MULTIPLE * error)


class ModelRun:
    """One model on one chip, with SLOTS sequences at most. Close it, or use it as a context."""

    def __init__(self, chip: Chip, checkpoint: Checkpoint, plan: ModelPlan) -> None:
        """Raises MissingOperator where the chip lacks one, ChipError."""
        self.plan = plan
        self._chip, self._checkpoint = chip, checkpoint
        facts = chip.capabilities()
        self.rows = min(SLOTS, facts.max_rows or SLOTS)
        self.most_tokens = min(STEP_TOKENS, facts.max_tokens or STEP_TOKENS)
        limits = StepLimits(self.rows, self.most_tokens)
        self._decider = Decider(chip.operators, proved=chip.operators.ids)
        arena, _ = workspace_bytes(plan, limits, self._decider)
        weights = load_weights(checkpoint, plan, chip, lambda done, total: None)
        pages = self.rows * plan.most_pages
        size = plan.group.page_size
        cache = CacheLimits(
            pages=pages,
            page_size=size,
            context_length=CONTEXT,
            max_running=self.rows,
            step_tokens=self.most_tokens,
            chunk=self.most_tokens,
        )
        self._runner = Runner(chip, plan, weights, cache, arena=arena, decide=self._decider)
        self._steps = 0

    def __enter__(self) -> ModelRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the device's memory."""
        self._runner.close()

    def check(self) -> StepChecker:
        """Check every operator of the steps from here on."""
        converted = {w.source.name: w.converted for w in self.plan.weights if w.converted}
        dense = dense_reader(self._checkpoint, converted)
        checker = StepChecker(self.plan, self._chip, self._decider, dense)
        self._runner.checker = checker
        return checker

    def sequence(self, tokens: Sequence[int], chunks: Sequence[int], slot: int = 0) -> Answer:
        """A sequence alone, in steps of these sizes (smaller where the chip asks for it): what
        follows the last position of each chunk."""
        answers: list[Answer] = []
        start = 0
        for end in accumulate(chunks):
            while start < end:
                size = min(end - start, self.most_tokens)
                answers += self.step([part(tokens, start, size, slot, sample=start + size == end)])
                start += size
        return joined(answers)

    def step(self, rows: Sequence[Row]) -> list[Answer]:
        """One step; an answer for each row that samples. Raises ChipError."""
        changes = tuple(self._table(row.slot) for row in rows)
        self._steps += 1
        result = self._runner.run(StepPlan(step=self._steps, rows=tuple(rows), changes=changes))
        sampling = [i for i, row in enumerate(rows) if row.sample]
        logits = self._logits(len(sampling))
        return [
            Answer(
                (rows[i].start + len(rows[i].tokens) - 1,), logits[n : n + 1], (result.tokens[i],)
            )
            for n, i in enumerate(sampling)
        ]

    def _logits(self, count: int) -> Array:
        found = np.zeros((count, self.plan.config.vocab_size), np.float32)
        program = self._runner.last
        if count and program is not None:
            self._chip.memory.copy_out(program.logits, found.data)
        return found

    def _table(self, slot: int) -> TableChange:
        """A slot's pages: those of one sequence never lie side by side, and run downwards."""
        count = self.plan.most_pages
        pages = tuple(1 + slot + self.rows * (count - 1 - i) for i in range(count))
        return TableChange(slot=slot, first=0, pages=pages)


def part(tokens: Sequence[int], start: int, size: int, slot: int, *, sample: bool) -> Row:
    """`size` tokens of a sequence from position `start`."""
    return Row(slot=slot, tokens=tuple(tokens[start : start + size]), start=start, sample=sample)


def joined(answers: Sequence[Answer]) -> Answer:
    """Answers to one sequence as one."""
    return Answer(
        tuple(p for a in answers for p in a.positions),
        np.concatenate([a.logits for a in answers]),
        tuple(t for a in answers for t in a.tokens),
    )


def apart(truth: Truth, wanted: Answer, got: Answer, limit: float) -> tuple[float, str]:
    """Relative L2 of `got` against `wanted`; what is wrong about it, if anything.

    Greedy tokens may differ where the oracle has a tie: where it gives both tokens logits that
    lie less than twice the measured error below its best one.
    """
    error = relative_l2(wanted.logits, got.logits)
    if not error <= limit:
        return error, f"relative L2 {error:.3g}, limit {limit:.3g}"
    for n, position in enumerate(got.positions):
        right = truth.logits[position]
        tokens = wanted.tokens[n], got.tokens[n]
        off = max(float(np.abs(a.logits[n] - right).max()) for a in (wanted, got))
        margin = float(right.max() - right[list(tokens)].min())
        if tokens[0] != tokens[1] and margin >= 2 * off:
            return error, (
                f"token {tokens[1]} instead of {tokens[0]} after position {position}: the oracle "
                f"has {margin:.3g} between them, the largest error of a logit is {off:.3g}"
            )
    return error, ""


@dataclass(frozen=True)
class Sequences:
    """Sequences for one batch. prompts: how much of each is its prompt; what follows is decoded.
    step_tokens: of one step at most."""

    tokens: Sequence[Sequence[int]]
    prompts: Sequence[int]
    step_tokens: int

    def alone(self, index: int) -> tuple[Sequence[int], list[int]]:
        """One of them, and its chunks when nothing else is there."""
        tokens, prompt = self.tokens[index], self.prompts[index]
        return tokens, [prompt] + [1] * (len(tokens) - prompt)

    def rows(self, computed: Sequence[int], room: int) -> list[Row]:
        """The next step: decodes first, then as much of the prompts as there is room for."""
        found: list[Row] = []
        decoding = [done >= prompt for done, prompt in zip(computed, self.prompts, strict=False)]
        for slot in sorted(range(len(self.tokens)), key=lambda i: not decoding[i]):
            start, end = computed[slot], len(self.tokens[slot])
            end = min(end, start + 1) if decoding[slot] else self.prompts[slot]
            size = min(end - start, room)
            if size > 0:
                sample = start + size >= self.prompts[slot]
                found.append(part(self.tokens[slot], start, size, slot, sample=sample))
                room -= size
        return found


def together(run: ModelRun, batch: Sequences) -> list[Answer]:
    """Each sequence's answer, computed beside the others."""
    computed = [0] * len(batch.tokens)
    found: list[list[Answer]] = [[] for _ in batch.tokens]
    while rows := batch.rows(computed, min(batch.step_tokens, run.most_tokens)):
        answers = iter(run.step(rows))
        for row in rows:
            computed[row.slot] += len(row.tokens)
            if row.sample:
                found[row.slot].append(next(answers))
    return [joined(answers) for answers in found]
