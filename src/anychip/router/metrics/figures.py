"""What the router counts as it passes calls on, in its event loop alone."""

from __future__ import annotations

from collections import Counter

from anychip.figures import Buckets
from anychip.router.asking import Ask
from anychip.router.choosing import Choice

from .catalogue import CATALOGUE, FIRST_BYTE, NOBODY


class RouterFigures:
    """Counters by their labels."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.tries: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[tuple[str]] = Counter()
        self.choices: Counter[tuple[str, str]] = Counter()
        self.prompt_tokens: Counter[tuple[str]] = Counter()
        self.matched_tokens: Counter[tuple[str]] = Counter()
        self.breakers: Counter[tuple[str]] = Counter()
        self.fallbacks: Counter[tuple[str]] = Counter()
        self.first_byte: dict[tuple[str], Buckets] = {}
        self.errors = 0

    def chosen(self, ask: Ask, choice: Choice, retry: str | None) -> None:
        """A try begins. retry: how the one before it failed; None: it is the first."""
        self.choices[choice.name, choice.why] += 1
        self.prompt_tokens[(choice.name,)] += ask.prompt_tokens
        # The policy's estimate is of blocks of bytes, the call's own one of the whole text.
        self.matched_tokens[(choice.name,)] += min(choice.matched_tokens, ask.prompt_tokens)
        if retry is not None:
            self.retries[(retry,)] += 1

    def answered_first(self, worker: str, seconds: float) -> None:
        """The first byte came so long after the call was given."""
        buckets = self.first_byte.setdefault((worker,), Buckets())
        buckets.observe(seconds, CATALOGUE[FIRST_BYTE].buckets)

    def ended(self, route: str, worker: str | None, status: int | None) -> None:
        """A call is over."""
        told = "none" if status is None else str(status)
        self.requests[route, worker or NOBODY, told] += 1
