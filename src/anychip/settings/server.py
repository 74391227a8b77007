"""Settings of what a server answers, and of its life."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared
from anychip.settings.http import HttpSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings(HttpSettings):
    """What it is called, what it keeps, and how long things may take."""

    served_model_name: str | None = declared(
        None,
        Flag(("--served-model-name",), "server", "name in /v1/models [the file's name]", "NAME"),
    )
    max_tokens_per_call: int = declared(
        2**22,
        Flag(
            ("--max-tokens-per-call",),
            "server",
            "tokens that one call may ask for: prompts x n x max_tokens",
            low=1,
            differs="no limit",
        ),
    )
    max_stored_responses: int = declared(
        1000,
        Flag(
            ("--max-stored-responses",),
            "server",
            "finished /v1/responses kept for each tenant; 0 keeps none",
            low=0,
        ),
    )
    max_stored_response_bytes: int = declared(
        64 * 2**20,
        Flag(
            ("--max-stored-response-bytes",),
            "server",
            "bytes of kept /v1/responses and their conversations for each tenant",
            low=1024,
            high=2**40,
        ),
    )
    stream_interval: int = declared(
        1, Flag(("--stream-interval",), "server", "tokens between two stream events", low=1)
    )
    enable_cache_report: bool = declared(
        True,
        Flag(
            ("--enable-cache-report",),
            "server",
            "cached tokens in usage: always on",
            differs="off",
        ),
    )
    enable_metrics: bool = declared(
        True, Flag(("--enable-metrics",), "server", "GET /metrics: always on", differs="off")
    )
    skip_server_warmup: bool = declared(
        False, Flag(("--skip-server-warmup",), "server", "ready without a first trial request")
    )
    watchdog_timeout: float = declared(
        300.0,
        Flag(
            ("--watchdog-timeout",),
            "server",
            "a step longer than this ends the engine",
            "SECONDS",
            low=0.001,
        ),
    )
