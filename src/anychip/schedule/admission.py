"""Who may start: in the policy's order, and only where it does not drive others out."""

from __future__ import annotations

from collections.abc import Iterator

from anychip.request import FinishReason

from .radix_node import common_length
from .sequence import Sequence
from .snapshots import Snapshots
from .state import PAGES, SLOTS, State

WORTH_WAITING_TOKENS = 32
"""A running prefill that shares at least this much is waited for, then found in the cache."""


def admitted(state: State) -> Iterator[Sequence]:
    """Start those that wait, one by one, as far as slots and pages reach.

    One whose prefix somebody is computing is passed over. The first that does not fit ends the
    row: nobody behind it may take the pages that it waits for. One that could not run even alone
    ends with an error.
    """
    if not state.free_slots:
        state.waits_for = SLOTS
        return
    if state.admission_blocked or not state.queue:
        return
    for sequence in state.order():
        if not state.free_slots:
            state.waits_for = SLOTS
            return
        if prefix_is_coming(state, sequence):
            continue
        state.store.attach(sequence)
        if fits(state, sequence, state.store.available):
            state.start(sequence)
            yield sequence
            continue
        state.store.detach(sequence)
        if state.decoding or state.prefilling:
            state.waits_for = PAGES
            break
        state.end(sequence, FinishReason.ERROR, error=too_long(state, sequence))
    state.admission_blocked = True


def too_long(state: State, sequence: Sequence) -> str:
    """Tell a client that its sequence has outgrown the cache."""
    limits = state.limits
    return (
        f"out of cache memory: {len(sequence.tokens)} tokens "
        f"({sequence.prompt_length} of prompt, {sequence.output_length} produced) need "
        f"{state.store.pages_for(len(sequence.tokens))} pages of {limits.page_size} tokens, "
        f"the cache has {limits.pages}; ask for fewer tokens or give the cache more memory"
    )


def fits(
    state: State, sequence: Sequence, available: int, leaving: frozenset[str] = frozenset()
) -> bool:
    """Whether its pages, and what those that run will probably need, are among `available`.

    leaving: ids of running requests that are as good as gone. Counting the rest of every prefill
    under way is what keeps two long prompts from each holding half of the memory and waiting for
    the other half.
    """
    staying = [other for other in state.running() if other.request.id not in leaving]
    if not staying:
        return state.store.pages_for(len(sequence.tokens)) - len(sequence.pages) <= available
    needed = sum(_expected_pages(state, other) for other in staying)
    return _expected_pages(state, sequence) + needed <= available


def _expected_pages(state: State, sequence: Sequence) -> int:
    """Pages beyond those it has: the rest of its prefill and the output that is expected."""
    # The last token that a request produces is never computed, hence the minus one.
    coming = state.estimate.coming(sequence.remaining(state.limits.context_length)) - 1
    return state.store.pages_for(len(sequence.tokens) + coming) - len(sequence.pages)


def prefix_is_coming(state: State, sequence: Sequence) -> bool:
    """Whether a prefill under way computes what this one would compute again.

    Found once, the one it waits for is remembered, up to where they agree.
    """
    leader = sequence.follows
    if leader is not None and _still_ahead(state, leader, sequence.follows_until):
        return True
    sequence.follows = None
    if not state.prefilling or state.store.tree is None or state.hooks.force_miss:
        return False
    start = state.store.cached_tokens(sequence)
    least = start + max(WORTH_WAITING_TOKENS, state.limits.page_size)
    if least > sequence.reusable:
        return False
    for other in state.prefilling.values():
        if other.request.namespace != sequence.request.namespace or other.is_scored:
            continue  # scoring is slow: computing it again is sooner done than waiting
        if other.tokens[:least] == sequence.tokens[:least]:
            if state.store.snapshots is None:
                until = _agreed(sequence, other, least)
            else:
                until = _snapshot_coming(state.store.snapshots, sequence, other)
            if until < least:
                continue
            sequence.follows, sequence.follows_until = other, until
            return True
    return False


def _still_ahead(state: State, leader: Sequence, until: int) -> bool:
    return state.prefilling.get(leader.request.id) is leader and leader.computed < until


def _agreed(sequence: Sequence, other: Sequence, least: int) -> int:
    """Return how far their tokens agree, to `least`, the last doubling of it, or the end."""
    agreed, longest = least, min(len(sequence.tokens), len(other.tokens))
    while agreed < longest:
        further = min(2 * agreed, longest)
        if other.tokens[agreed:further] != sequence.tokens[agreed:further]:
            break
        agreed = further
    return agreed


def _snapshot_coming(snapshots: Snapshots, sequence: Sequence, other: Sequence) -> int:
    """Return where another sequence will be able to go on from a prefill's snapshot; 0: nowhere.

    It is asked for one where they part, unless it is there already.
    """
    agreed = common_length(other.tokens, sequence.tokens, 0)
    point = snapshots.whole(min(agreed, sequence.reusable))
    if point > other.planned:
        snapshots.ask(other, point)
        return point
    return max((end for end in other.coming if end <= point), default=0)
