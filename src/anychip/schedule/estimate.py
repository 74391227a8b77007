"""How much output a request will probably still produce: what admission leaves room for."""

from __future__ import annotations

from collections.abc import Iterable

from .sequence import Sequence

FIRST_SHARE = 0.5
"""Before anything finished: half of what a request may produce."""

MOST_TOKENS = 4096
"""A longer rest is counted as this much: few requests make use of it."""

WEIGHT = 1 / 16
"""Of the newest finished request in the mean."""

RECOVERY_STEPS = 600
"""Decode steps after which nothing is left of what a retraction raised."""

RETRACTED_TOKENS = 20
"""After a retraction every request is expected to produce at least so many more."""


class OutputEstimate:
    """The share of their allowed rest that requests are expected to produce, 0 to 1.

    learned: the mean share that finished requests made use of. raised: what retractions add on
    top for a while: they say that the mean does not hold for those that run now. It fades, and
    with it the caution.
    """

    def __init__(self, conservativeness: float, least_tokens: int) -> None:
        self._conservativeness, self._least_tokens = conservativeness, least_tokens
        self._learned = FIRST_SHARE
        self._raised = 0.0
        self._fade = 0.0

    @property
    def share(self) -> float:
        """What is expected now."""
        return min(1.0, max(self._learned, self._raised) * self._conservativeness)

    def coming(self, remaining: int) -> int:
        """Tokens expected of a request that may still produce `remaining`."""
        expected = int(min(remaining, MOST_TOKENS) * self.share)
        return min(remaining, max(expected, self._least_tokens))

    def finished(self, sequence: Sequence, context_length: int) -> None:
        """Learn from a request that ended by itself."""
        produced = sequence.output_length
        allowed = produced + max(0, sequence.remaining(context_length))
        self._learned += WEIGHT * (produced / max(1, allowed) - self._learned)

    def retracted(self, running: Iterable[Sequence], context_length: int) -> None:
        """Memory ran out with these running: expect more of everyone for some time."""
        produced = allowed = 0
        for sequence in running:
            produced += sequence.output_length + RETRACTED_TOKENS
            allowed += sequence.output_length + sequence.remaining(context_length)
        observed = min(1.0, produced / max(1, allowed))
        self._raised = max(self._raised, self._learned, observed) * 0.9 + 0.1
        self._fade = self._raised / RECOVERY_STEPS

    def stepped(self) -> None:
        """Forget a little of it with every step in which somebody decoded."""
        if self._raised:
            self._raised = max(0.0, self._raised - self._fade)

    def idle(self) -> None:
        """Nothing runs or waits: nobody is left of those that the caution was for."""
        self._raised = 0.0
