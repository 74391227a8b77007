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
    max_queued_tokens: int | None = declared(
        None,
        Flag(
            ("--max-queued-tokens", "--max-num-queued-tokens"),
            "schedule",
            "waiting tokens before 503 [no limit]",
            low=1,
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
            "which waiting request is next: first come, longest cached prefix, highest priority, "
            "or fewest tokens to compute",
            "POLICY",
            choices=("fcfs", "lpm", "priority", "shortest-prefill-first"),
        ),
    )
    priority_scheduling_preemption_threshold: int = declared(
        10,
        Flag(
            ("--priority-scheduling-preemption-threshold",),
            "schedule",
            "with policy priority: running requests that are so much lower make way",
            low=1,
        ),
    )
    disable_priority_preemption: bool = declared(
        False,
        Flag(
            ("--disable-priority-preemption",),
            "schedule",
            "with policy priority: running requests keep their place",
        ),
    )
    retraction_policy: str = declared(
        "loss",
        Flag(
            ("--retraction-policy",),
            "schedule",
            "who gives way when memory runs out: who loses least, or the lowest priority",
            "POLICY",
            choices=("loss", "priority"),
            spelled={"length": "loss"},
            differs="length, which is not quite the loss",
        ),
    )
    schedule_conservativeness: float = declared(
        1.0,
        Flag(
            ("--schedule-conservativeness",),
            "schedule",
            "multiplies the output that admission expects; higher: fewer at once",
            "FACTOR",
            low=0.01,
            high=100,
        ),
    )
    waiting_timeout: float | None = declared(
        None,
        Flag(
            ("--waiting-timeout",),
            "schedule",
            "a request that did not start by then ends with 503 [no limit]",
            "SECONDS",
            low=0.001,
            differs="an environment variable",
        ),
    )
    running_timeout: float | None = declared(
        None,
        Flag(
            ("--running-timeout",),
            "schedule",
            "a request that runs longer ends with 504 [no limit]",
            "SECONDS",
            low=0.001,
            differs="an environment variable, 503",
        ),
    )
    target_tpot_ms: float | None = declared(
        None,
        Flag(
            ("--target-tpot-ms",),
            "schedule",
            "mean time of steps with running answers; prefill follows [1.5 times that of "
            "steps without prefill]",
            "MS",
            low=0.001,
        ),
    )
    disable_overlap_schedule: bool = declared(
        False,
        Flag(
            ("--disable-overlap-schedule",),
            "schedule",
            "a step is booked before the next one runs, not meanwhile",
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
