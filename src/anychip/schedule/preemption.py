"""Running requests that make way for one of higher priority."""

from __future__ import annotations

from .admission import fits, prefix_is_coming
from .sequence import Sequence
from .state import State


def urgent_victims(state: State) -> list[Sequence]:
    """Return whom the first in line needs gone and may drive out; nobody where that is in vain.

    Retract them before the step's rows are chosen: whoever is retracted has none in it.
    """
    preempt_from = state.options.preempt_from
    if not state.preempts or preempt_from is None:
        return []
    if state.admission_blocked or not state.queue:
        return []
    first = next((s for s in state.order() if not prefix_is_coming(state, s)), None)
    if first is None:
        return []
    least = first.request.priority - preempt_from
    lower = [s for s in state.running() if s.request.priority <= least]
    if not lower:
        return []
    state.store.attach(first)
    victims = _fewest(state, first, lower)
    state.store.detach(first)
    return victims


def _fewest(state: State, first: Sequence, lower: list[Sequence]) -> list[Sequence]:
    """Return who has to go, the lowest priority and the least loss first; none where all is vain.

    Counts a victim's shared pages as won, which they are unless others share them: where that
    was too hopeful, `first` finds more room than before and still waits.
    """
    size = state.limits.page_size
    lower = sorted(lower, key=lambda s: (s.request.priority, s.loss(size), -s.arrival))
    available = state.store.available
    for count in range(len(lower) + 1):
        victims = lower[:count]
        leaving = frozenset(victim.request.id for victim in victims)
        won = sum(len(victim.pages) for victim in victims)
        if (state.free_slots or victims) and fits(state, first, available + won, leaving):
            return victims
    return []
