"""Settings of the scheduler."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Who runs when, and how much of it in a step."""

    max_running_requests: int | None = declared(
        None,
        Flag(
            ("--max-running-requests",),
            "schedule",
            "requests that run at once [64]",
            low=1,
            high=65536,
            differs="guessed from the cache's size",
        ),
    )
    max_queued_requests: int | None = declared(
        None,
        Flag(
            ("--max-queued-requests",), "schedule", "waiting requests before 503 [no limit]", low=1
        ),
    )
    max_prefill_tokens: int = declared(
        16384, Flag(("--max-prefill-tokens",), "schedule", "prefill tokens in one step", low=1)
    )
    chunked_prefill_size: int | None = declared(
        None,
        Flag(
            ("--chunked-prefill-size",),
            "schedule",
            "tokens of one prompt in a step, -1: no chunks [the chip's]",
            low=-1,
            differs="guessed from the device's size",
        ),
    )
    schedule_policy: str = declared(
        "fcfs",
        Flag(
            ("--schedule-policy",),
            "schedule",
            "which waiting request is next",
            "POLICY",
            choices=("fcfs",),
            way_out="other policies are not there yet",
        ),
    )
    random_seed: int | None = declared(
        None,
        Flag(
            ("--random-seed",),
            "schedule",
            "seed of requests that bring none [a new one each start]",
            low=0,
            high=2**63 - 1,
        ),
    )
