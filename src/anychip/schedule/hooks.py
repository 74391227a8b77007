"""Switches by which tests and doubtful operators provoke the rare paths."""

from __future__ import annotations

import msgspec


class SchedulerHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What to provoke; the defaults provoke nothing and no answer may depend on any of them.

    force_retract_every: every so many steps the decoding request that loses least is retracted,
    even where it is the only one; 0 is never.
    force_miss: the prefix cache finds nothing, while finished prefixes still go into it.
    """

    force_retract_every: int = 0
    force_miss: bool = False


NO_HOOKS = SchedulerHooks()
