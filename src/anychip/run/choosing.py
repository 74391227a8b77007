"""What a step does beside the network: shapes logits, rules tokens out, tells probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.contract.memory import Memory
from anychip.plan import NOT_SAMPLED, Row, StepPlan
from anychip.request import NO_LOGPROBS, TokenLogprob

from .batch import Staging
from .masks import Grammars, Masks
from .programs import StepProgram
from .shaping import NO_ENTRIES, Entries, SlotShaping, join_entries
from .sizes import Sizes


class Shapes:
    """The requests whose logits are shaped, by slot."""

    def __init__(self, vocabulary: int, eos_ids: frozenset[int], grammars: Grammars | None) -> None:
        self.masks = Masks(vocabulary, grammars)
        self._vocabulary = vocabulary
        self._eos_ids = eos_ids
        self._slots: dict[int, SlotShaping] = {}

    def begin(self, plan: StepPlan) -> None:
        """Take in the slots that begin to be shaped with this step."""
        for start in plan.starts:
            shaping = self._slots[start.slot] = SlotShaping(start, self._eos_ids, self._vocabulary)
            if start.params.rules_tokens_out:
                self.masks.begin(start, shaping)

    def entries(self, plan: StepPlan) -> Entries:
        """The logits of the step that are changed one by one."""
        if not any(row.shaped for row in plan.rows):
            return NO_ENTRIES
        found = []
        for index, row in _sampling(plan):
            if row.shaped and self._slots[row.slot].params.adjusts_logits:
                found.append(self._slots[row.slot].entries(index))
        return join_entries(found)

    def mask_words(self, plan: StepPlan) -> int:
        """Words of a row's mask; 0 where the step needs none."""
        return self.masks.words if any(self._is_masked(row) for row in plan.rows) else 0

    def make_masks(self, plan: StepPlan, sizes: Sizes, staging: Staging) -> Future[None]:
        """Begin to write them."""
        slots = [-1] * sizes.samples
        for index, row in _sampling(plan):
            if self._is_masked(row):
                slots[index] = row.slot
        return self.masks.make(slots, staging.masks(sizes))

    def take(
        self, plan: StepPlan, tokens: tuple[int, ...]
    ) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
        """Take in the tokens of the rows; return those that have to follow, and why a request
        cannot go on, both by row of the plan."""
        forced, errors = {}, {}
        for number, row in enumerate(plan.rows):
            if not row.shaped or tokens[number] == NOT_SAMPLED:
                continue
            following = self._took(row.slot, tokens[number])
            if following:
                forced[number] = following
            if self._is_masked(row) and self.masks.broken(row.slot):
                errors[number] = self.masks.broken(row.slot)
        return forced, errors

    def close(self) -> None:
        """End the masks' thread."""
        self.masks.close()

    def _took(self, slot: int, token: int) -> tuple[int, ...]:
        shaping = self._slots[slot]
        forced = self.masks.took(slot, token) if shaping.params.rules_tokens_out else ()
        for one in (token, *forced):
            shaping.took(one)
        return forced

    def _is_masked(self, row: Row) -> bool:
        return row.shaped and row.sample and self._slots[row.slot].params.rules_tokens_out


def _sampling(plan: StepPlan) -> Iterator[tuple[int, Row]]:
    """Rows that sample, and which of the step's logit rows is theirs."""
    index = 0
    for row in plan.rows:
        index += row.logit_rows
        if row.sample:
            yield index - 1, row


@dataclass(frozen=True)
class StepLogprobs:
    """What a step found out of each logit row: logprob and rank [R], likeliest tokens [R, N]."""

    logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]

    def of(self, index: int, top: int) -> TokenLogprob:
        """One row's, with the `top` likeliest."""
        pairs = zip(self.ids[index, :top].tolist(), self.values[index, :top].tolist(), strict=True)
        likeliest = tuple((token, value) for token, value in pairs if not math.isnan(value))
        return TokenLogprob(self.logprobs[index].item(), self.ranks[index].item(), likeliest)


def read_logprobs(program: StepProgram, memory: Memory) -> StepLogprobs:
    """Wait for the probabilities of a step."""
    results = program.results
    rows = results["logprob"].shape[0]
    top = results["top_ids"].shape[1] if "top_ids" in results else 0
    told = StepLogprobs(
        np.zeros(rows, np.float32),
        np.zeros(rows, np.int32),
        np.zeros((rows, top), np.float32),
        np.zeros((rows, top), np.int32),
    )
    memory.copy_out(results["logprob"], told.logprobs.data)
    memory.copy_out(results["rank"], told.ranks.data)
    if top:
        memory.copy_out(results["top_values"], told.values.reshape(-1).data)
        memory.copy_out(results["top_ids"], told.ids.reshape(-1).data)
    return told


def share_out(
    plan: StepPlan, told: StepLogprobs
) -> tuple[dict[int, TokenLogprob], dict[int, tuple[TokenLogprob, ...]]]:
    """Probabilities of sampled tokens, and of those that were to be scored, by row of the plan."""
    logprobs, scores = {}, {}
    index = 0
    for number, row in enumerate(plan.rows):
        if row.score:
            count, top = len(row.score.tokens), row.score.top
            scores[number] = tuple(told.of(n, top) for n in range(index, index + count))
        index += row.logit_rows
        if row.sample and row.logprobs != NO_LOGPROBS:
            logprobs[number] = told.of(index - 1, row.logprobs)
    return logprobs, scores
