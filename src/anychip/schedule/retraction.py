"""Who has to give way when memory runs out."""

from __future__ import annotations

from collections.abc import Iterable

from anychip.request import FinishReason

from .admission import too_long
from .sequence import Sequence
from .state import State

RETRACTIONS = ("loss", "priority")
"""loss: who loses least. priority: who has the lowest one, and of those who loses least."""


def gives_way(state: State, candidates: Iterable[Sequence]) -> Sequence:
    """Return who has to: by loss, computed positions outside the tree; of equals the latest."""
    size, by_priority = state.limits.page_size, state.options.retraction == "priority"

    def order(sequence: Sequence) -> tuple[int, int, int]:
        priority = sequence.request.priority if by_priority else 0
        return priority, sequence.loss(size), -sequence.arrival

    return min(candidates, key=order)


def make_room_for_decodes(state: State) -> None:
    """See to it that every decoding request that is left has a page for its next token.

    More tokens than one, that a grammar forced, have to get along with what is left.

    Progress: whoever is retracted here had a token since its admission, or makes way for one
    that gets a token in this very step; tokens are kept, so this cannot go on for ever.
    """
    at_page_end = _at_page_end(state, state.decoding.values())
    if not at_page_end:
        return
    for sequence in at_page_end:
        # It holds every page there is, so nothing is left to evict and nobody to retract.
        if len(sequence.pages) >= state.limits.pages:
            state.end(sequence, FinishReason.ERROR, error=too_long(state, sequence))
    while pages_missing(state, state.decoding.values()) > state.store.available:
        state.estimate.retracted(state.running(), state.limits.context_length)
        state.retract(gives_way(state, state.running()))


def force_retraction(state: State) -> None:
    """Retract one on purpose; only one that got a token since it started, or nothing would end."""
    if state.decoding and retraction_is_forced(state):
        state.retract(gives_way(state, state.decoding.values()))


def retraction_is_forced(state: State) -> bool:
    """Whether a test wants one with the next step."""
    every = state.hooks.force_retract_every
    return bool(every) and (state.counters.steps + 1) % every == 0


def pages_missing(state: State, decoding: Iterable[Sequence]) -> int:
    """Return how many pages these need for one token more each."""
    return len(_at_page_end(state, decoding))


def _at_page_end(state: State, decoding: Iterable[Sequence]) -> list[Sequence]:
    size = state.limits.page_size
    return [s for s in decoding if s.computed + s.ahead == len(s.pages) * size]
