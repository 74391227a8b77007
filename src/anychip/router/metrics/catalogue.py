"""Every series of the router's /metrics as data.

The label `worker` is a worker's name, or "none" where a call reached nobody; `chip` is what it said
of its chip when it was counted, or "unknown". Both end GONE_S after the worker was removed.
"""

from __future__ import annotations

from anychip.http.metric import counter, gauge, histogram

NOBODY = "none"
UNKNOWN = "unknown"
"""The chip of a worker that has not told it."""
FIRST_BYTE = "anychip_router_first_byte_seconds"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_WORKER = ("worker", "chip")
_NO_WINDOW = "the worker does not tell"

ROUTER = (
    gauge("router_workers_ready", "1", "Workers that calls may be given to."),
    gauge(
        "router_worker_state",
        "1",
        "1 for the state that the worker is in, 0 for the others: starting, ready, sick, "
        "draining or gone (for five minutes, then its series end).",
        *_WORKER,
        "state",
        absent="no worker is known",
    ),
    gauge(
        "router_worker_calls",
        "1",
        "Calls that the worker is answering.",
        *_WORKER,
        absent="no worker is known",
    ),
    gauge(
        "router_worker_prompt_tokens",
        "1",
        "Prompt tokens of these calls; of text an estimate.",
        *_WORKER,
        absent="no worker is known",
    ),
    gauge(
        "router_worker_window",
        "1",
        "Calls that the worker runs at once.",
        *_WORKER,
        absent=_NO_WINDOW,
    ),
    counter(
        "router_requests",
        "1",
        "Calls that are over; worker: who answered last; status: what the client was told, or "
        "none.",
        *_WORKER,
        "route",
        "status",
        absent="no call is over",
    ),
    counter(
        "router_tries",
        "1",
        "Calls given to workers; result: answered, or how it failed: connect, timeout, broken, "
        "refused, cut (in mid-answer) or left (the client did).",
        *_WORKER,
        "result",
        absent="no try is over",
    ),
    counter(
        "router_retries",
        "1",
        "Tries after the first of a call; reason: how the one before it failed.",
        "reason",
        absent="nothing was tried again",
    ),
    counter(
        "router_choices",
        "1",
        "Choices of a worker; why: prefix (it has most of the prompt), balance (another has, but "
        "too much to do), load, turn, chance, key, or only (no other could be taken).",
        *_WORKER,
        "why",
        absent="nothing was chosen",
    ),
    counter(
        "router_prompt_tokens",
        "1",
        "Prompt tokens given to the worker; of text an estimate.",
        *_WORKER,
        absent="nothing was given",
    ),
    counter(
        "router_matched_prompt_tokens",
        "1",
        "Of them, those that the policy believed to be in the worker's cache.",
        *_WORKER,
        absent="nothing was given",
    ),
    histogram(
        "router_first_byte_seconds",
        "seconds",
        "From giving a call to a worker to the first byte of its answer.",
        *_WORKER,
        buckets=_SECONDS,
    ),
    counter(
        "router_breaker_openings",
        "1",
        "How often the worker was taken out for failing too often in a row.",
        *_WORKER,
        absent="no breaker opened",
    ),
    counter(
        "router_rule_fallbacks",
        "1",
        "Calls given to workers other than their rule's, all of which were away.",
        "rule",
        absent="there were none",
    ),
    counter("router_telemetry_errors", "1", "Failures to take these figures, or to trace a call."),
)
CATALOGUE = {metric.name: metric for metric in ROUTER}
"""By their names."""
