"""What a case should have answered: the network in float64, and what rounding makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anychip.contract.dtype import DType
from anychip.hostops.views import Array
from anychip.model.checkpoint import Checkpoint
from anychip.ops.check import relative_l2
from anychip.ops.composed_error import MULTIPLE, STEPS
from anychip.ops.limits import ROUNDOFF
from anychip.run.reference import composed_logits, reference_logits

FIRST_ID = 3
"""Token ids below are special in the models that are written here."""

SAMPLE = 96
"""Tokens of the text whose rounding is measured."""


@dataclass
class References:
    """Reference logits of one model by sequence: ways share prompts. context: positions that are
    served, which some rotations depend on."""

    checkpoint: Checkpoint
    context: int
    _known: dict[tuple[int, ...], Array] = field(default_factory=dict)
    _limits: dict[DType, float] = field(default_factory=dict)

    def logits(self, prompt: Sequence[int], tokens: Sequence[int]) -> Array:
        """Float64 [len(tokens), V]: what each token should have been chosen from."""
        return self.whole((*prompt, *tokens[:-1]))[len(prompt) - 1 :]

    def scores(self, prompt: Sequence[int]) -> Array:
        """Float64 [len(prompt) - 1]: log probability of each token but the first."""
        return log_probabilities(self.whole(tuple(prompt)), prompt)

    def whole(self, sequence: tuple[int, ...]) -> Array:
        """Float64 [len(sequence), V]: what should follow each position."""
        count = len(sequence)
        for known, logits in self._known.items():
            if known[:count] == sequence:  # what comes later changes nothing
                return logits[:count]
        checkpoint = self.checkpoint
        found = reference_logits(checkpoint, checkpoint.config, sequence, context=self.context)
        self._known[sequence] = found
        return found

    def limit(self, dtype: DType) -> float:
        """Relative L2 that rounding explains in this dtype: as many times the error of the recipes
        as conformance allows, at the worst position of a text; at least one rounding."""
        if dtype not in self._limits:
            config = self.checkpoint.config
            text = ids(SAMPLE, min(SAMPLE, self.context), config.vocab_size)
            found = self._composed(text, dtype)
            rows = zip(self.whole(tuple(text)), found, strict=True)
            worst = max(relative_l2(wanted, got) for wanted, got in rows)
            self._limits[dtype] = MULTIPLE * max(ROUNDOFF[dtype], worst)
        return self._limits[dtype]

    def score_limit(self, prompt: Sequence[int], dtype: DType) -> float:
        """The same for the log probabilities of a prompt, which a chip computes in float32."""
        found = self._composed(prompt, dtype)
        error = relative_l2(self.scores(prompt), log_probabilities(found, prompt))
        return MULTIPLE * max(ROUNDOFF[dtype], STEPS * ROUNDOFF[DType.FLOAT32], error)

    def _composed(self, tokens: Sequence[int], dtype: DType) -> Array:
        checkpoint = self.checkpoint
        return composed_logits(checkpoint, checkpoint.config, tokens, dtype, context=self.context)


def ids(seed: int, count: int, vocabulary: int) -> list[int]:
    """Token ids of a prompt, the same in every run."""
    noise = np.random.default_rng(seed)
    return [int(token) for token in noise.integers(FIRST_ID, vocabulary, count)]


def log_probabilities(logits: Array, tokens: Sequence[int]) -> Array:
    """Natural, float64: of each token but the first, from the logits [T, V] before it."""
    wide = logits[: len(tokens) - 1].astype(np.float64)
    wide = wide - wide.max(axis=1, keepdims=True)
    rows = np.arange(len(wide))
    found: Array = wide[rows, list(tokens[1:])] - np.log(np.exp(wide).sum(axis=1))
    return found
