"""Who may start: first come, first served, and only where it does not drive others out."""

from __future__ import annotations

from anychip.request import FinishReason

from .sequence import Sequence
from .state import State

HEADROOM_TOKENS = 32
"""Tokens that each running request can still produce after an admission, before memory is short."""

WORTH_WAITING_TOKENS = 32
"""A running prefill that shares at least this much is waited for, then found in the cache."""


def next_admitted(state: State) -> Sequence | None:
    """Start the head of the queue, or None where none waits or the head has to wait on.

    A head that could not run even alone ends with an error.
    """
    while state.queue and state.free_slots and not state.admission_blocked:
        sequence = state.queue[0]
        state.store.attach(sequence)
        if _fits(state, sequence) and not _prefix_is_coming(state, sequence):
            state.start(sequence)
            return sequence
        state.store.detach(sequence)
        if state.decoding or state.prefilling:
            state.admission_blocked = True
        else:
            state.end(sequence, FinishReason.ERROR, error=too_long(state, sequence))
    return None


def too_long(state: State, sequence: Sequence) -> str:
    """Tell a client that its sequence has outgrown the cache."""
    limits = state.limits
    return (
        f"out of cache memory: {len(sequence.tokens)} tokens "
        f"({sequence.prompt_length} of prompt, {sequence.output_length} produced) need "
        f"{state.store.pages_for(len(sequence.tokens))} pages of {limits.page_size} tokens, "
        f"the cache has {limits.pages}; ask for fewer tokens or give the cache more memory"
    )


def _fits(state: State, sequence: Sequence) -> bool:
    """Whether its pages, and what those that run will soon need, can be had.

    Counting the rest of every prefill under way is what keeps two long prompts from each
    holding half of the memory and waiting for the other half.
    """
    store = state.store
    running = state.running()
    if not running:
        return store.pages_for(len(sequence.tokens)) - len(sequence.pages) <= store.available
    needed = _soon_needed(state, sequence)
    return needed + sum(_soon_needed(state, other) for other in running) <= store.available


def _soon_needed(state: State, sequence: Sequence) -> int:
    """Pages beyond those it has: the rest of its prefill and some tokens more."""
    # The last token that a request produces is never computed, hence the minus one.
    coming = min(HEADROOM_TOKENS, sequence.remaining(state.limits.context_length) - 1)
    return state.store.pages_for(len(sequence.tokens) + coming) - len(sequence.pages)


def _prefix_is_coming(state: State, sequence: Sequence) -> bool:
    """Whether a prefill under way computes what this one would compute again."""
    if state.store.tree is None or state.hooks.force_miss:
        return False
    end = sequence.computed + max(WORTH_WAITING_TOKENS, state.limits.page_size)
    if end >= len(sequence.tokens):
        return False
    start = sequence.tokens[:end]
    return any(
        other.request.namespace == sequence.request.namespace and other.tokens[:end] == start
        for other in state.prefilling.values()
    )
