"""Settings of metrics: what is read how often, and further names."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """What /metrics shows beside what is counted anyway."""

    telemetry_interval: float = declared(
        1.0,
        Flag(
            ("--telemetry-interval",),
            "metrics",
            "seconds between two readings of the device",
            "SECONDS",
            low=0.05,
            high=3600,
        ),
    )
    metrics_alias: str | None = declared(
        None,
        Flag(
            ("--metrics-alias",),
            "metrics",
            "also export the names that this engine's dashboards read; both: sglang,vllm",
            "NAME",
            choices=("sglang", "vllm", "sglang,vllm"),
            spelled={"vllm,sglang": "sglang,vllm"},
        ),
    )
    operator_timing_interval: int = declared(
        512,
        Flag(
            ("--operator-timing-interval",),
            "metrics",
            "one of so many steps runs call by call to time its operators; 0: none",
            "STEPS",
            low=0,
        ),
    )
