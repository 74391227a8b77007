"""How much prefill shares a step with requests that decode, so that their tokens keep coming.

Measured, not configured: a step that decodes alone says what decoding takes, a mixed one what each
prefill token adds. Every step earns prefill some time, and a mixed step is made once there is
enough for one that is worth it: small chunks cost much and yield little.
"""

from __future__ import annotations

from collections import deque
from statistics import median

FAIR_EXTRA = 0.5
"""What steps take on top of decoding alone in the mean, as a share of that."""

MOST_EXTRA = 1.3
"""What a mixed step takes on top; as many steps between two are not mixed as the mean wants.
With some noise gaps stay under four times those of decoding alone."""

LEAST_EXTRA = 0.05
"""What steps earn at the least, whatever the target: prefill goes on, however slow."""

SAVED_STEPS, OWED_STEPS = 16, 4
"""Steps whose time can be saved up, or be owed after slow ones."""

MEASURE_EVERY = 32
"""Mixed steps between two that decode alone, where every step could be mixed."""

FIRST_TOKENS = 64
"""Prefill tokens of a mixed step before any was measured."""

ALONE = 3
"""Steps that decode alone, whose median is what decoding takes."""

SETTLED_AT_ONCE = 64
"""Steps that decoded alone and wait to be counted at the most."""

LEAST_TOKENS = 4
"""Prefill tokens of a mixed step."""


class Pace:
    """Chooses the prefill tokens of mixed steps. Seconds are those of whole steps.

    Without any measurement it limits nothing.
    target_s: what steps should take in the mean; None: as long as is fair, where a request that
    waits for its prefill counts as much as one that decodes.
    """

    def __init__(self, target_s: float | None) -> None:
        self._target_s = target_s
        self._alone: deque[float] = deque(maxlen=ALONE)
        self._alone_s = 0.0  # the median of these
        self._per_token: deque[float] = deque(maxlen=9)
        self._mixed_steps = 0
        self._saved_s = 0.0
        self._weight = 1.0
        self._unsettled: list[float] = []  # steps that decoded alone, not counted yet

    def prefill_tokens(self, decoding: int, prefilling: int) -> int | None:
        """Return how many prefill tokens the next step may have; None: any number.

        decoding, prefilling: how many requests want the next token, and how many a prefill.
        """
        self._settle()
        if not decoding or not prefilling or not (self._alone or self._per_token):
            return None
        if not self._alone or self._mixed_steps >= MEASURE_EVERY:
            return 0
        self._weight = max(1.0, prefilling / decoding)
        if self._saved_s < self._burst_s:
            return 0
        if not self._per_token:
            return FIRST_TOKENS
        per_token = max(median(self._per_token), 1e-9)
        return _rounded(max(LEAST_TOKENS, int(min(self._burst_s / per_token, 1e9))))

    def measured(self, decoding: int, prefill_tokens: int, seconds: float) -> None:
        """Take in what a step took. decoding: its rows with one token of a running answer."""
        if not prefill_tokens:
            self._unsettled.append(seconds)
            if len(self._unsettled) == SETTLED_AT_ONCE:
                self._settle()
            return
        self._settle()
        if decoding:
            self._mixed_steps += 1
            if self._alone:
                extra = max(0.0, seconds - self._alone_s)
                self._per_token.append(extra / prefill_tokens)
                self._save(max(extra, self._burst_s))  # however much of it was used
        elif not self._per_token:
            self._per_token.append(seconds / prefill_tokens)

    def _settle(self) -> None:
        """Count the steps that decoded alone: nobody asks behind most of them."""
        for seconds in self._unsettled:
            self._alone.append(seconds)
            self._alone_s = median(self._alone)
            self._mixed_steps = 0
            self._save(0.0)
        self._unsettled.clear()

    @property
    def _earned_s(self) -> float:
        """What a step adds to the time for prefill."""
        alone = self._alone_s
        if self._target_s is None:
            return FAIR_EXTRA * alone * self._weight
        return max(self._target_s - alone, LEAST_EXTRA * alone)

    @property
    def _burst_s(self) -> float:
        """What a mixed step takes on top of decoding alone."""
        return max(self._earned_s, MOST_EXTRA * self._alone_s)

    def _save(self, spent_s: float) -> None:
        earned = self._earned_s
        saved = self._saved_s + earned - spent_s
        most = max(SAVED_STEPS * earned, MOST_EXTRA * self._alone_s)
        self._saved_s = min(max(saved, -OWED_STEPS * earned), most)


def _rounded(tokens: int) -> int:
    """Round down to 2 or 3 times a power of two: a chip prepares a step of every size once."""
    power = 1 << (tokens.bit_length() - 1)
    return power + power // 2 if tokens >= power + power // 2 else power
