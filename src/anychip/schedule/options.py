"""How the scheduler chooses, as plain values."""

from __future__ import annotations

import msgspec

from .hooks import NO_HOOKS, SchedulerHooks


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may decide about the scheduler; the defaults limit nothing.

    radix: whether finished prefixes are kept and found again.
    eviction: which cached pages go first, a name in `eviction.EVICTION_POLICIES`.
    policy: who of those that wait is next, a name in `policy.POLICIES`.
    retraction: who gives way when memory runs out, a name in `retraction.RETRACTIONS`.
    preempt_from: under policy "priority", a request takes the place of running ones whose priority
    is lower by at least this; None: never.
    conservativeness: multiplies the output that admission expects; over 1 admits fewer.
    headroom_tokens: output that each running request is given room for at the least.
    max_queued, max_queued_tokens: requests, and their prompt tokens, that may wait.
    waiting_timeout_s: from arrival to the first slot. running_timeout_s: from the first slot on,
    retractions included.
    target_tpot_s: mean seconds of steps with decoding requests; None: what is fair.
    jump_forward: whether grammars may force tokens, so that no step is planned ahead of one that
    samples under a grammar.
    """

    radix: bool = True
    eviction: str = "lru"
    policy: str = "fcfs"
    retraction: str = "loss"
    preempt_from: int | None = 10
    conservativeness: float = 1.0
    headroom_tokens: int = 32
    max_queued: int | None = None
    max_queued_tokens: int | None = None
    waiting_timeout_s: float | None = None
    running_timeout_s: float | None = None
    target_tpot_s: float | None = None
    jump_forward: bool = True
    hooks: SchedulerHooks = NO_HOOKS


DEFAULT_OPTIONS = SchedulerOptions()
