"""Who has waited or run for too long: the one place where time ends a request."""

from __future__ import annotations

from anychip.request import Failure, FinishReason

from .options import SchedulerOptions
from .sequence import Sequence
from .state import State


def end_overdue(state: State, options: SchedulerOptions, now: float) -> None:
    """End them with an error. What a running one computed stays in the prefix cache."""
    waiting_s, running_s = options.waiting_timeout_s, options.running_timeout_s
    if waiting_s is not None:
        for sequence in [s for s in state.queue if not s.admitted and now - s.since > waiting_s]:
            text = (
                f"waited {now - sequence.since:.1f} s for a place, the limit is {waiting_s:g} s "
                f"(--waiting-timeout); {len(state.queue)} requests wait: try later"
            )
            state.end(sequence, FinishReason.ERROR, error=text, failure=Failure.WAITED_TOO_LONG)
    if running_s is not None:
        for sequence in [s for s in state.by_id.values() if s.admitted]:
            if now - sequence.since > running_s:
                text = _ran_too_long(sequence, now, running_s)
                state.end(sequence, FinishReason.ERROR, error=text, failure=Failure.RAN_TOO_LONG)


def someone_is_overdue(state: State, options: SchedulerOptions, now: float) -> bool:
    """Whether `end_overdue` would end anyone."""
    if options.waiting_timeout_s is None and options.running_timeout_s is None:
        return False
    limits = {False: options.waiting_timeout_s, True: options.running_timeout_s}
    for sequence in state.by_id.values():
        limit = limits[sequence.admitted]
        if limit is not None and now - sequence.since > limit:
            return True
    return False


def _ran_too_long(sequence: Sequence, now: float, limit_s: float) -> str:
    return (
        f"ran for {now - sequence.since:.1f} s, the limit is {limit_s:g} s (--running-timeout); "
        f"{sequence.output_length} tokens were produced: ask for fewer"
    )
