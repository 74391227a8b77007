"""How much prefill shares a step with requests that decode, so that their tokens keep coming.

Measured, not configured: a step with decoding rows alone says what they wait at the least, a mixed
one what each prefill token adds. From time to time a step leaves prefill out to measure it anew.
"""

from __future__ import annotations

from collections import deque
from statistics import median

FAIR_EXTRA = 0.8
"""What steps may take on top of decoding alone in the mean, as a share of that: with some noise a
step doubles."""

MOST_EXTRA = 2.0
"""What a single step may take on top, while it is saved up: short prompts do not have to crawl."""

SAVED_STEPS = 32
"""Steps whose extra time can be saved up."""

MEASURE_EVERY = 32
"""Mixed steps between two that decode alone."""

FIRST_TOKENS = 64
"""Prefill tokens of a mixed step before any was measured."""

LEAST_TOKENS = 4
"""Prefill goes on, however slow: nobody waits for ever."""


class Pace:
    """Chooses the prefill tokens of mixed steps. Seconds are those of whole steps.

    Without any measurement it limits nothing.
    target_s: what a mixed step should take; None: as long as is fair, where a request that waits
    for its prefill counts as much as one that decodes. Fair is meant in the mean: steps save what
    they do not spend, so a short prompt takes a few longer steps, a long one many even ones.
    """

    def __init__(self, target_s: float | None) -> None:
        self._target_s = target_s
        self._alone: deque[float] = deque(maxlen=3)
        self._per_token: deque[float] = deque(maxlen=9)
        self._mixed_steps = 0
        self._saved_s = 0.0
        self._weight = 1.0

    def prefill_tokens(self, decoding: int, prefilling: int) -> int | None:
        """Return how many prefill tokens the next step may have; None: any number.

        decoding, prefilling: how many requests want the next token, and how many a prefill.
        """
        if not decoding or not prefilling or not (self._alone or self._per_token):
            return None
        if not self._alone or self._mixed_steps >= MEASURE_EVERY:
            return 0
        if not self._per_token:
            return FIRST_TOKENS
        alone = median(self._alone)
        self._weight = max(1.0, prefilling / decoding)
        extra = self._saved_s if self._target_s is None else self._target_s - alone
        if self._target_s is None:
            extra = min(extra, MOST_EXTRA * alone * self._weight)
        per_token = max(median(self._per_token), 1e-9)
        return _rounded(max(LEAST_TOKENS, int(min(extra / per_token, 1e9))))

    def measured(self, decoding: int, prefill_tokens: int, seconds: float) -> None:
        """Take in what a step took. decoding: its rows with one token of a running answer."""
        if not prefill_tokens:
            self._alone.append(seconds)
            self._mixed_steps = 0
            self._save(0.0)
        elif decoding:
            self._mixed_steps += 1
            if self._alone:
                extra = max(0.0, seconds - median(self._alone))
                self._per_token.append(extra / prefill_tokens)
                self._save(extra)
        elif not self._per_token:
            self._per_token.append(seconds / prefill_tokens)

    def _save(self, spent_s: float) -> None:
        """Every step earns the fair extra time; what it did not spend is saved."""
        fair = FAIR_EXTRA * median(self._alone) * self._weight
        self._saved_s = min(max(self._saved_s - spent_s, 0.0) + fair, SAVED_STEPS * fair)


def _rounded(tokens: int) -> int:
    """Round down to 2 or 3 times a power of two: a chip prepares a step of every size once."""
    power = 1 << (tokens.bit_length() - 1)
    return power + power // 2 if tokens >= power + power // 2 else power
