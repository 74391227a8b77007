"""What the router counts as it passes calls on, in its event loop alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from anychip.figures import Buckets
from anychip.router.asking import Ask
from anychip.router.choosing import Choice

from .catalogue import CATALOGUE, FIRST_BYTE, NOBODY

Who = tuple[str, str]
"""A worker's name and its chip."""
NO_WORKER: Who = (NOBODY, NOBODY)


class RouterFigures:
    """Counters by their labels; a worker's name and its chip come first where there are both."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str, str]] = Counter()
        self.tries: Counter[tuple[str, str, str]] = Counter()
        self.retries: Counter[tuple[str]] = Counter()
        self.choices: Counter[tuple[str, str, str]] = Counter()
        self.prompt_tokens: Counter[Who] = Counter()
        self.matched_tokens: Counter[Who] = Counter()
        self.breakers: Counter[Who] = Counter()
        self.fallbacks: Counter[tuple[str]] = Counter()
        self.first_byte: dict[Who, Buckets] = {}
        self.errors = 0

    def chosen(self, ask: Ask, choice: Choice, chip: str, retry: str | None) -> None:
        """A try begins. retry: how the one before it failed; None: it is the first."""
        who = choice.name, chip
        self.choices[choice.name, chip, choice.why] += 1
        self.prompt_tokens[who] += ask.prompt_tokens
        # The policy's estimate is of blocks of bytes, the call's own one of the whole text.
        self.matched_tokens[who] += min(choice.matched_tokens, ask.prompt_tokens)
        if retry is not None:
            self.retries[(retry,)] += 1

    def answered_first(self, who: Who, seconds: float) -> None:
        """The first byte came so long after the call was given."""
        buckets = self.first_byte.setdefault(who, Buckets())
        buckets.observe(seconds, CATALOGUE[FIRST_BYTE].buckets)

    def ended(self, route: str, who: Who, status: int | None) -> None:
        """A call is over. who: answered last."""
        told = "none" if status is None else str(status)
        self.requests[who[0], who[1], route, told] += 1

    def keep(self, workers: Collection[str]) -> None:
        """Forget what was counted of all others: workers come and go, and must not pile up."""
        of_workers: tuple[dict[Any, Any], ...] = (
            *(self.requests, self.tries, self.choices, self.prompt_tokens, self.matched_tokens),
            *(self.breakers, self.first_byte),
        )
        for counted in of_workers:
            for labels in [one for one in counted if one[0] not in workers]:
                del counted[labels]
