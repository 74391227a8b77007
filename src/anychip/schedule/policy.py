"""In which order those that wait are tried. A policy orders; it never refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .sequence import Sequence
from .store import PageStore
from .waiting import WaitingQueue

LONGEST_SORTED = 128
"""Policies that look into the prefix tree look at so many, the oldest; the rest comes behind."""

MOST_OVERTAKEN = 64
"""A request that so many later ones overtook goes first: no order may starve anyone."""

Order = Callable[[WaitingQueue, PageStore], Iterable[Sequence]]


def first_come(waiting: WaitingQueue, _: PageStore) -> Iterable[Sequence]:
    """Order by arrival."""
    return list(waiting)


def highest_priority(waiting: WaitingQueue, _: PageStore) -> Iterable[Sequence]:
    """Order by priority, then by arrival. Low priorities may wait for ever: it is what they say."""
    return sorted(waiting, key=lambda sequence: -sequence.request.priority)


def longest_prefix(waiting: WaitingQueue, store: PageStore) -> Iterable[Sequence]:
    """Order by the cached part, the longest first, then by arrival."""
    return _by_cache(waiting, lambda sequence: -store.cached_tokens(sequence))


def shortest_prefill(waiting: WaitingQueue, store: PageStore) -> Iterable[Sequence]:
    """Order by the tokens to compute, the fewest first, then by arrival."""
    return _by_cache(waiting, lambda sequence: len(sequence.tokens) - store.cached_tokens(sequence))


def _by_cache(waiting: WaitingQueue, key: Callable[[Sequence], int]) -> list[Sequence]:
    everyone = list(waiting)
    looked_at, rest = everyone[:LONGEST_SORTED], everyone[LONGEST_SORTED:]
    starved = [sequence for sequence in looked_at if sequence.overtaken >= MOST_OVERTAKEN]
    others = [sequence for sequence in looked_at if sequence.overtaken < MOST_OVERTAKEN]
    return [*starved, *sorted(others, key=key), *rest]


POLICIES: dict[str, Order] = {
    "fcfs": first_come,
    "lpm": longest_prefix,
    "priority": highest_priority,
    "shortest-prefill-first": shortest_prefill,
}
"""Policies by the names that users type, SGLang's."""
