"""The engine: what requests see, and what the scheduler, its cache and its steps do."""

from __future__ import annotations

from board_schema import Dashboard, Panel, Query, Row, quantile, rate, series
from board_steps import ERRORS, PROCESSES, STEPS

BY = "chip, model_name, instance"
NAME = "{{chip}} {{instance}}"
GENERATED = f"sum by ({BY}) ({rate('anychip_generated_tokens_total')})"
HITS = (
    f"sum by ({BY}) ({rate('anychip_cached_tokens_total')})"
    f" / sum by ({BY}) ({rate('anychip_prompt_tokens_total')})"
)


def _stat(title: str, description: str, unit: str, expr: str) -> Panel:
    return Panel(title, description, unit, (Query(expr, NAME),), "stat", width=4, height=5)


def _quantiles(title: str, description: str, histogram: str, unit: str = "s") -> Panel:
    shares = (0.5, 0.9, 0.99)
    queries = (
        Query(quantile(share, histogram, BY), f"{NAME} p{100 * share:.0f}") for share in shares
    )
    return Panel(title, description, unit, tuple(queries))


FIRST = Row(
    "First look",
    (
        _stat(
            "Servers ready",
            "How many of the chosen engines take requests.",
            "short",
            f"sum by ({BY}) ({series('anychip_engine_ready')})",
        ),
        _stat(
            "Running",
            "Requests that hold a slot.",
            "short",
            f"sum by ({BY}) ({series('anychip_requests_running')})",
        ),
        _stat(
            "Waiting",
            "Requests that wait, whatever the reason.",
            "short",
            f"sum by ({BY}) ({series('anychip_requests_waiting')})",
        ),
        _stat(
            "First token, p90",
            "Nine of ten requests had their first token within this time.",
            "s",
            quantile(0.9, "anychip_time_to_first_token_seconds", BY),
        ),
        _stat(
            "Time per token, p90",
            "Nine of ten requests had their further tokens at this pace or faster.",
            "s",
            quantile(0.9, "anychip_time_per_output_token_seconds", BY),
        ),
        _stat("Tokens a second", "Tokens generated.", "suffix: tok/s", GENERATED),
    ),
)

LATENCY = Row(
    "What requests see",
    (
        _quantiles(
            "Time to first token (TTFT)",
            "From arrival to the first token.",
            "anychip_time_to_first_token_seconds",
        ),
        _quantiles(
            "Time per output token (TPOT)",
            "A request's mean time per token after its first.",
            "anychip_time_per_output_token_seconds",
        ),
        _quantiles(
            "Inter-token latency",
            "From one output of a request to the next. Its p99 shows pauses that TPOT averages.",
            "anychip_inter_token_latency_seconds",
        ),
        _quantiles(
            "Time in the queue",
            "From arrival at the engine to the first admission.",
            "anychip_queue_time_seconds",
        ),
        _quantiles(
            "End to end",
            "From arrival to the last token.",
            "anychip_e2e_request_latency_seconds",
        ),
        Panel(
            "Tokens a second",
            "Generated, and prompt tokens that were admitted.",
            "suffix: tok/s",
            (
                Query(GENERATED, f"{NAME} generated"),
                Query(f"sum by ({BY}) ({rate('anychip_prompt_tokens_total')})", f"{NAME} prompt"),
            ),
        ),
        Panel(
            "How sequences end",
            "Sequences a second by finish reason, and those that ended before their time.",
            "reqps",
            (
                Query(rate("anychip_requests_finished_total"), f"{NAME} {{{{finish_reason}}}}"),
                Query(rate("anychip_requests_aborted_total"), f"{NAME} aborted"),
                Query(rate("anychip_requests_timed_out_total"), f"{NAME} timed out"),
            ),
        ),
        _quantiles(
            "Length of prompts",
            "Prompt tokens of a sequence.",
            "anychip_request_prompt_tokens",
            "short",
        ),
        _quantiles(
            "Length of answers",
            "Tokens of an answer.",
            "anychip_request_generated_tokens",
            "short",
        ),
    ),
)

SCHEDULER = Row(
    "Scheduler",
    (
        Panel(
            "Running",
            "Requests that hold a slot, and how many there could be.",
            "short",
            (
                Query(series("anychip_requests_running"), f"{NAME} running"),
                Query(series("anychip_engine_max_running_requests"), f"{NAME} most"),
            ),
        ),
        Panel(
            "Waiting, by reason",
            "slots: all are taken. pages: no cache memory. tokens: the step's budget is spent. "
            "prefix: a running request computes it. grammar: it compiles.",
            "short",
            (Query(series("anychip_requests_waiting"), f"{NAME} {{{{reason}}}}"),),
            stacked=True,
        ),
        Panel(
            "Waiting tokens and tokens in flight",
            "Tokens of requests that wait, and of those that run.",
            "short",
            (
                Query(series("anychip_waiting_tokens"), f"{NAME} waiting"),
                Query(series("anychip_tokens_in_flight"), f"{NAME} in flight"),
            ),
        ),
        Panel(
            "Retractions and preemptions",
            "Running requests that were queued again, a second: for lack of cache memory, and of "
            "them those that made way for a higher priority.",
            "reqps",
            (
                Query(rate("anychip_retractions_total"), f"{NAME} retracted"),
                Query(rate("anychip_preemptions_total"), f"{NAME} preempted"),
            ),
        ),
        Panel(
            "Expected output",
            "Share of its rest that each request is given room for; it rises after retractions.",
            "percentunit",
            (Query(series("anychip_expected_output_ratio"), NAME),),
        ),
    ),
)

CACHE = Row(
    "Cache",
    (
        Panel(
            "KV cache",
            "Positions: held by running requests, evictable (cached, nobody uses them), free.",
            "short",
            (Query(series("anychip_kv_tokens"), f"{NAME} {{{{state}}}}"),),
            stacked=True,
        ),
        Panel(
            "Held share of the KV cache",
            "Near one: requests will wait for pages or be retracted.",
            "percentunit",
            (Query(series("anychip_kv_usage_ratio"), NAME),),
            limit=0.95,
        ),
        Panel(
            "Hit ratio",
            "Share of prompt tokens whose KV was found, of the requests of this moment.",
            "percentunit",
            (Query(HITS, NAME),),
        ),
        Panel(
            "Cached tokens by tier",
            "Prompt tokens a second that were found in the device's memory or the host's.",
            "suffix: tok/s",
            (Query(rate("anychip_cached_tokens_total"), f"{NAME} {{{{tier}}}}"),),
            stacked=True,
        ),
        Panel(
            "Evictions and copies to the host",
            "Pages a second: evicted, of them saved to host memory, and loaded back.",
            "ops",
            (
                Query(rate("anychip_evicted_pages_total"), f"{NAME} evicted"),
                Query(rate("anychip_host_saved_pages_total"), f"{NAME} saved"),
                Query(rate("anychip_host_loaded_pages_total"), f"{NAME} loaded"),
            ),
        ),
        Panel(
            "Pages in host memory",
            "0 without --enable-hierarchical-cache.",
            "short",
            (Query(series("anychip_host_pages"), f"{NAME} {{{{state}}}}"),),
        ),
        Panel(
            "Snapshots of recurrent state",
            "0 where the model has none.",
            "short",
            (Query(series("anychip_state_snapshots"), f"{NAME} {{{{state}}}}"),),
        ),
    ),
)

ENGINE = Dashboard(
    "anychip-engine",
    "AnyChip: engine",
    "What requests see, and what the scheduler, its cache and its steps do.",
    (FIRST, LATENCY, SCHEDULER, CACHE, STEPS, ERRORS, PROCESSES),
)
