"""Every series of /metrics as data: names, kinds, units, labels and what they mean.

The collectors, docs/metrics.md and the tests are made from it. Every series has the labels
`model_name` and `chip`; `Metric.labels` are those beside them.
"""

from __future__ import annotations

from anychip.figures import GRAMMAR_SECONDS, STEP_ROWS, STEP_SECONDS, STEP_TOKENS
from anychip.http.metric import Metric
from anychip.http.metric import counter as _counter
from anychip.http.metric import gauge as _gauge
from anychip.http.metric import histogram as _histogram

COMMON_LABELS = ("model_name", "chip")
"""Labels of every series: the name that the model is served under, and the chip's."""

# Seconds; powers of about two from one step of a small model to a very long answer.
_FIRST_TOKEN = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_PER_TOKEN = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_LATENCY = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_QUEUE = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_LENGTHS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


_NO_TELEMETRY = "the chip has no telemetry"
_NO_POOL = "the chip has no pool"
_NO_TRAFFIC = "the chip does not count its copies"
_UNREAD = "nothing was read yet"
_UNTOLD = "the chip does not tell"

DEVICE = (
    _gauge(
        "device_memory_capacity_bytes",
        "bytes",
        "Memory of the device; source says where the number comes from.",
        "source",
        absent=_NO_TELEMETRY,
    ),
    _gauge(
        "device_memory_used_bytes",
        "bytes",
        "Of it, what is in use, by whomever.",
        "source",
        absent=_NO_TELEMETRY,
    ),
    _gauge(
        "device_memory_free_bytes",
        "bytes",
        "Of it, what is free.",
        "source",
        absent=_NO_TELEMETRY,
    ),
    _gauge(
        "device_memory_headroom_bytes",
        "bytes",
        "The largest single allocation that would succeed now.",
        "source",
        absent=_NO_TELEMETRY,
    ),
    _gauge(
        "device_memory_planned_bytes",
        "bytes",
        "Memory by what the plan at the start gave it to: weights, cache pages, workspace ...",
        "kind",
    ),
    _gauge(
        "device_memory_committed_ratio",
        "ratio",
        "Share of the device's memory that weights and KV cache take. Above 0.85 memory that is "
        "backed by the host begins to page, which shows as jitter.",
    ),
    _gauge("device_pool_used_bytes", "bytes", "Blocks handed out.", absent=_NO_POOL),
    _gauge("device_pool_cached_bytes", "bytes", "Blocks kept for reuse.", absent=_NO_POOL),
    _gauge(
        "device_pool_asked_bytes",
        "bytes",
        "What was asked for of the blocks handed out.",
        absent=_NO_POOL,
    ),
    _gauge(
        "device_pool_fragmentation_ratio",
        "ratio",
        "Share of the handed-out bytes that nobody asked for.",
        absent=_NO_POOL,
    ),
    _gauge(
        "device_utilization_ratio",
        "ratio",
        "How busy the device computes; of a processor: the cores that this process may use.",
        absent=_UNTOLD,
    ),
    _gauge("device_temperature_celsius", "celsius", "Temperature of the device.", absent=_UNTOLD),
    _gauge("device_power_watts", "watts", "Power that the device draws.", absent=_UNTOLD),
    _counter(
        "device_copy_bytes",
        "bytes",
        "Bytes copied between host and device; direction: in (to the device) or out.",
        "direction",
        absent=_NO_TRAFFIC,
    ),
    _counter(
        "device_copy_seconds",
        "seconds",
        "Time in those copies, waits before them left out; 0 where the chip does not measure it.",
        "direction",
        absent=_NO_TRAFFIC,
    ),
    _counter(
        "device_operator_seconds",
        "seconds",
        "Time in operators in the steps that were timed, one of --operator-timing-interval; "
        "timing: synchronized (host's clock, a wait after each call) or device.",
        "operator",
        "timing",
        absent="no step was timed yet",
    ),
    _counter(
        "device_operator_calls",
        "1",
        "Calls of operators in the steps that were timed.",
        "operator",
        "timing",
        absent="no step was timed yet",
    ),
)
"""What the device tells, read outside the engine's loop."""

ENGINE = (
    _gauge("engine_ready", "1", "1 where the engine takes requests, else 0."),
    _counter("engine_deaths", "1", "How often the engine process died."),
    _gauge("engine_max_running_requests", "1", "Requests that can run at once."),
    _gauge("requests_running", "1", "Requests that hold a slot."),
    _gauge(
        "requests_waiting",
        "1",
        "Requests that wait; reason: slots (all are taken), pages (cache memory), tokens (the "
        "step's budget is spent), prefix (a running request computes it), grammar (compiles).",
        "reason",
    ),
    _gauge("waiting_tokens", "1", "Tokens of the requests that wait."),
    _gauge("tokens_in_flight", "1", "Tokens of running requests whose KV is in the cache."),
    _gauge(
        "kv_tokens",
        "1",
        "Positions of the KV cache; state: free, evictable (cached, nobody uses it) or held "
        "(used by running requests).",
        "state",
    ),
    _gauge("kv_pages", "1", "The same in pages.", "state"),
    _gauge("kv_usage_ratio", "ratio", "Held share of the KV cache."),
    _counter("evicted_pages", "1", "Pages evicted from the prefix cache."),
    _gauge(
        "host_pages",
        "1",
        "Pages of host memory for evicted pages; state: free or used.",
        "state",
    ),
    _counter("host_saved_pages", "1", "Evicted pages copied to host memory."),
    _counter("host_loaded_pages", "1", "Pages copied back from host memory."),
    _gauge(
        "state_snapshots",
        "1",
        "Snapshots of recurrent state; state: free or used. 0 where the model has none.",
        "state",
    ),
    _counter("state_snapshots_taken", "1", "Snapshots of recurrent state that were taken."),
    _counter("state_snapshots_evicted", "1", "Snapshots evicted to make room for another."),
    _counter("prompt_tokens", "1", "Prompt tokens of admitted requests."),
    _counter(
        "cached_tokens",
        "1",
        "Of them, those found in the prefix cache; tier: device or host memory.",
        "tier",
    ),
    _gauge("cache_hit_ratio", "ratio", "Cached share of all prompt tokens so far."),
    _counter("generated_tokens", "1", "Tokens generated."),
    _counter("retractions", "1", "Running requests queued again for lack of cache memory."),
    _counter("preemptions", "1", "Of them, those that made way for a higher priority."),
    _counter("requests_timed_out", "1", "Requests that waited or ran for too long."),
    _gauge("expected_output_ratio", "ratio", "Share of its rest that each request has room for."),
    _counter("steps", "1", "Steps of the engine."),
    Metric(
        "anychip_step_seconds",
        "histogram",
        "seconds",
        ("phase",),
        "Time of a step from its launch to its tokens; phase: prefill (no row decodes), decode "
        "(every row does) or mixed.",
        buckets=STEP_SECONDS,
    ),
    _counter("step_tokens", "1", "Tokens computed; phase: prefill or decode.", "phase"),
    _counter("step_rows", "1", "Rows of steps; phase: prefill or decode.", "phase"),
    _histogram("step_batch_rows", "1", "Rows of a step.", buckets=STEP_ROWS),
    _histogram("step_batch_tokens", "1", "Tokens of a step.", buckets=STEP_TOKENS),
    _counter(
        "python_seconds",
        "seconds",
        "Time in the engine's own code; phase: plan, commit, or run (what is not in chip_seconds).",
        "phase",
    ),
    _counter("chip_seconds", "seconds", "Time in launches, copies and waits."),
    _histogram(
        "grammar_compile_seconds",
        "seconds",
        "Time to compile a grammar; one that is known takes next to none.",
        buckets=GRAMMAR_SECONDS,
    ),
    _histogram(
        "grammar_mask_seconds",
        "seconds",
        "Time to compute the masks of a step's rows, which goes on beside the chip.",
        buckets=GRAMMAR_SECONDS,
    ),
    _counter("host_operator_calls", "1", "Operator calls that the host computed."),
    _counter("host_operator_bytes", "bytes", "Bytes that these calls moved."),
    _counter(
        "chip_errors",
        "1",
        "Errors of the chip; layer: where (memory, execution, operators ...), kind: what.",
        "layer",
        "kind",
        absent="there were none",
    ),
    _counter("check_violations", "1", "Broken invariants of the scheduler; 0 or a bug."),
    _counter("telemetry_errors", "1", "Failures to take these figures; the log has the first."),
    _counter(
        "engine_major_page_faults",
        "1",
        "Pages that the engine process had to wait for while they were read from a disk.",
        absent=_UNREAD,
    ),
    _gauge(
        "engine_swap_bytes",
        "bytes",
        "Memory of the engine process that is swapped out.",
        absent=_UNREAD,
    ),
)
"""What the engine process tells."""

REQUESTS = (
    _histogram(
        "time_to_first_token_seconds",
        "seconds",
        "Arrival to the first token.",
        buckets=_FIRST_TOKEN,
    ),
    _histogram(
        "time_per_output_token_seconds",
        "seconds",
        "A request's mean time per token after its first.",
        buckets=_PER_TOKEN,
    ),
    _histogram(
        "inter_token_latency_seconds",
        "seconds",
        "Time from one output of a request to the next, shared out among its tokens.",
        buckets=_PER_TOKEN,
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "seconds",
        "Arrival to the last token.",
        buckets=_LATENCY,
    ),
    _histogram(
        "queue_time_seconds",
        "seconds",
        "Arrival at the engine to the first admission.",
        buckets=_QUEUE,
    ),
    _histogram("request_prompt_tokens", "1", "Prompt tokens of a sequence.", buckets=_LENGTHS),
    _histogram("request_generated_tokens", "1", "Tokens of an answer.", buckets=_LENGTHS),
    _counter(
        "requests_finished",
        "1",
        "Sequences that came to their end; finish_reason: stop, length, tool_calls ...",
        "finish_reason",
        absent="none finished yet",
    ),
    _counter(
        "requests_aborted",
        "1",
        "Sequences that ended before their time: client gone, aborted, or failed.",
    ),
)
"""What requests saw, measured by the server."""

SERVER = (
    _gauge(
        "snapshot_age_seconds",
        "seconds",
        "Age of the figures shown; source: engine (the process's last word) or device (its last "
        "reading).",
        "source",
        absent="nothing was read yet",
    ),
    _counter("http_requests", "1", "HTTP requests by route.", "endpoint", "method"),
    _counter(
        "http_responses",
        "1",
        "HTTP responses by route and status.",
        "endpoint",
        "method",
        "status",
    ),
    _gauge("http_requests_active", "1", "HTTP requests that are being answered."),
    _counter(
        "process_cpu_seconds",
        "seconds",
        "Processor time of a process and its threads; process: server or engine.",
        "process",
    ),
    _gauge(
        "process_resident_memory_bytes",
        "bytes",
        "Memory of a process that is in RAM; process: server or engine.",
        "process",
    ),
)
"""What the HTTP process tells of itself."""

TABLES = {"Device": DEVICE, "Engine": ENGINE, "Requests": REQUESTS, "Server": SERVER}
CATALOGUE = {metric.name: metric for table in TABLES.values() for metric in table}
"""All of them by name."""
