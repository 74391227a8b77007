"""Level models: tiny models whole, against the oracle, and against themselves in other steps.

Each is asked at the smallest and the largest page size. A limit is a multiple of what rounding
alone does to the same network in the same dtype; a control tells whether that limit could show
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from anychip.conform.model_runs import (
    ModelRun,
    Sequences,
    Truth,
    apart,
    cut,
    joined,
    plan_for,
    tiny_checkpoint,
    together,
    truth_of,
)
from anychip.conform.proof import (
    Check,
    Level,
    Proof,
    failed,
    inconclusive,
    missing,
    passed,
    unsupported,
)
from anychip.conform.subject import Subject
from anychip.contract.dtype import DType
from anychip.contract.formats import BLOCK_FORMATS
from anychip.contract.registration import Chip
from anychip.model.checkpoint import Checkpoint
from anychip.ops.check import CONTROL_FACTOR, relative_l2
from anychip.ops.decide import MissingOperator
from anychip.run.model_plan import ModelPlan
from anychip.run.reference import reference_logits

TOKENS: tuple[int, ...] = tuple(np.random.default_rng(2).integers(3, 384, 28).tolist())
PROMPTS = (1, 7, 24)
"""Lengths of prompts that are computed in one step."""
SINGLES = ((1,) * 24,)
CHUNKINGS = ((7, 7, 7, 3), (16, 8), (5, 1, 11, 2, 5))
BATCH = (24, 1, 17, 5, 12)
"""Prompt lengths of sequences that are computed together."""
DECODES = 4
STEP_TOKENS = 20
"""Of a step with several sequences: long prompts come in chunks while others decode."""

PAIR = 2.0
"""Two results that are each within the limit may lie that many limits apart."""


@dataclass(frozen=True)
class _Model:
    """dtype: of activations. format: of the matrices in the file."""

    dtype: DType
    format: str

    @property
    def label(self) -> str:
        """The check's subject."""
        plain = self.format == self.dtype.value
        return self.dtype.value if plain else f"{self.dtype.value} {self.format}"


@dataclass(frozen=True)
class _Asked:
    """A model on the chip at one page size."""

    chip: Chip
    checkpoint: Checkpoint
    plan: ModelPlan

    def run(self) -> ModelRun:
        """Load it."""
        return ModelRun(self.chip, self.checkpoint, self.plan)

    def blame(self, play: Callable[[ModelRun], object]) -> str:
        """Which operator is at fault: the same steps once more, each call against the oracle."""
        with self.run() as run:
            checker = run.check()
            play(run)
            found = checker.divergences
        if not found:
            return "no operator alone is beyond its limit"
        return f"first operator that diverges: {found[0].op} ({found[0]})"


@dataclass
class _Tally:
    """The comparison that came closest to its limit, and its control."""

    error: float = 0.0
    limit: float = 1.0
    control: float = 0.0

    def add(self, error: float, limit: float, control: float) -> None:
        """A comparison that held."""
        if error / limit >= self.error / self.limit:
            self.error, self.limit, self.control = error, limit, control

    def proof(self, text: str) -> Proof:
        """For comparisons that all held."""
        figures = {"error": self.error, "limit": self.limit, "control": self.control}
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
        if self.control <= CONTROL_FACTOR * self.limit:
            return inconclusive(f"{text}: {numbers}: rounding hides what a wrong result would show")
        return passed(f"{text}: worst relative L2 {numbers}", **figures)


Compute = Callable[[list[_Asked]], Proof]


def checks(subject: Subject) -> list[Check]:
    """Every check for every activation dtype: with weights in it, and in a block format where
    the chip takes one. Raises what opening the chip raises."""
    return [
        Check(id, Level.MODELS, partial(_prove, compute, model), model.label)
        for model in _models(subject.chip)
        for id, compute in _COMPUTES.items()
    ]


def _models(chip: Chip) -> list[_Model]:
    facts = chip.capabilities()
    blocks = [f for f in facts.weight_formats if f in BLOCK_FORMATS][:1]
    return [_Model(d, f) for d in facts.activation_dtypes for f in (d.value, *blocks)]


def _prove(compute: Compute, model: _Model, subject: Subject) -> Proof:
    chip = subject.chip
    sizes = chip.capabilities().page_sizes
    with tiny_checkpoint(model.format) as checkpoint:
        plans = [
            plan_for(checkpoint, chip, model.dtype, size)
            for size in sorted({min(sizes), max(sizes)})
        ]
        try:
            return compute([_Asked(chip, checkpoint, plan) for plan in plans])
        except MissingOperator as error:
            return missing(str(error))


def _pages(asked: list[_Asked]) -> str:
    return "pages of " + " and ".join(str(one.plan.group.page_size) for one in asked)


def _layer_by_layer(asked: list[_Asked]) -> Proof:
    """E1. The control is the network with one layer more, or less."""
    depths = range(1, asked[0].plan.config.layers + 1)
    truths = {n: truth_of(asked[0].checkpoint, cut(asked[0].plan, n), TOKENS) for n in depths}
    tally = _Tally()
    for depth, truth in truths.items():
        other = truths.get(depth + 1) or truths[depth - 1]
        control = relative_l2(truth.logits, other.logits)
        for one in asked:
            error, problem = _prompts(replace(one, plan=cut(one.plan, depth)), truth)
            if problem:
                return failed(f"wrong from layer {depth - 1} on, {_pages([one])}, {problem}")
            tally.add(error, truth.limit, control)
    return tally.proof(f"right after each of {len(depths)} layers, {_pages(asked)}")


def _prompts(asked: _Asked, truth: Truth) -> tuple[float, str]:
    """Prompts against the oracle: worst error, and what is wrong."""
    worst = 0.0
    with asked.run() as run:
        answers = [run.sequence(TOKENS, [size]) for size in PROMPTS]
    for size, got in zip(PROMPTS, answers, strict=True):
        error, problem = apart(truth, truth.answer(got.positions), got, truth.limit)
        if problem:
            blame = asked.blame(partial(_alone, (size,)))
            return error, f"a prompt of {size}: {problem}; {blame}"
        worst = max(worst, error)
    return worst, ""


def _alone(chunks: tuple[int, ...], run: ModelRun) -> object:
    return run.sequence(TOKENS, chunks)


def _one_by_one(asked: list[_Asked]) -> Proof:
    """E2: what follows each token, against prompts of every length."""
    return _stepwise(asked, SINGLES, "decoded token by token")


def _chunked(asked: list[_Asked]) -> Proof:
    """E3: what follows each chunk, against the prompt up to there in one step."""
    return _stepwise(asked, CHUNKINGS, "in chunks")


def _stepwise(asked: list[_Asked], ways: tuple[tuple[int, ...], ...], text: str) -> Proof:
    truth = truth_of(asked[0].checkpoint, asked[0].plan, TOKENS)
    limit, control, tally = PAIR * truth.limit, _forgetful(asked[0], truth), _Tally()
    for one, way in _pairs(asked, ways):
        with one.run() as run:
            got = run.sequence(TOKENS, way)
            whole = joined([run.sequence(TOKENS, [end + 1]) for end in got.positions])
        error, problem = apart(truth, whole, got, limit)
        if problem:
            blame = one.blame(partial(_alone, way))
            return failed(f"{text} {list(way)}, {_pages([one])}: {problem}; {blame}")
        tally.add(error, limit, control)
    return tally.proof(f"{text}, {_pages(asked)}")


def _pairs(
    asked: list[_Asked], ways: tuple[tuple[int, ...], ...]
) -> Iterator[tuple[_Asked, tuple[int, ...]]]:
    for one in asked:
        for way in ways:
            yield one, way


def _forgetful(asked: _Asked, truth: Truth) -> float:
    """A control: the last logits where the first half of the sequence is not looked at."""
    half = len(TOKENS) // 2
    config, last = asked.plan.config, len(TOKENS) - half - 1
    logits = reference_logits(asked.checkpoint, config, TOKENS[half:], positions=[last])
    return relative_l2(truth.logits[-1:], logits)


def _in_a_batch(asked: list[_Asked]) -> Proof:
    """E4: prompts, chunks and decodes side by side, against each sequence alone."""
    most = asked[0].chip.capabilities().max_rows
    if most == 1:
        return unsupported("max_rows is 1: the chip computes one sequence at a time")
    sequences = [_rotated(5 * i, prompt + DECODES) for i, prompt in enumerate(BATCH)][:most]
    truths = [truth_of(asked[0].checkpoint, asked[0].plan, tokens) for tokens in sequences]
    limit, tally = PAIR * max(truth.limit for truth in truths), _Tally()
    control = _forgetful(asked[0], truths[0])
    batch = Sequences(sequences, BATCH, STEP_TOKENS)
    for one in asked:
        with one.run() as run:
            found = together(run, batch)
            alone = [run.sequence(*batch.alone(i), slot=0) for i in range(len(sequences))]
        for truth, got, wanted in zip(truths, found, alone, strict=True):
            error, problem = apart(truth, wanted, got, limit)
            if problem:
                blame = one.blame(lambda run: together(run, batch))
                text = f"a prompt of {wanted.positions[0] + 1} beside others, {_pages([one])}"
                return failed(f"{text}: {problem}; {blame}")
            tally.add(error, limit, control)
    return tally.proof(f"{len(sequences)} sequences together, {_pages(asked)}")


def _rotated(first: int, count: int) -> tuple[int, ...]:
    """Another sequence of the same tokens: what belongs to one row must not do for another."""
    return (TOKENS[first:] + TOKENS[:first])[:count]


_COMPUTES: dict[str, Compute] = {
    "E1": _layer_by_layer,
    "E2": _one_by_one,
    "E3": _chunked,
    "E4": _in_a_batch,
}
