"""Chips side by side: the same questions, one line for each chip."""

from __future__ import annotations

from board_schema import Dashboard, Panel, Query, Row, quantile, rate, series

NAME = "{{chip}}"
TTFT, TPOT = "anychip_time_to_first_token_seconds", "anychip_time_per_output_token_seconds"
THROUGHPUT = f"sum by (chip) ({rate('anychip_generated_tokens_total')})"
UTILIZATION = f"avg by (chip) ({series('anychip_device_utilization_ratio')})"
HITS = (
    f"sum by (chip) ({rate('anychip_cached_tokens_total')})"
    f" / sum by (chip) ({rate('anychip_prompt_tokens_total')})"
)


def _quantiles(title: str, description: str, histogram: str) -> Panel:
    queries = (
        Query(quantile(share, histogram, "chip"), f"{NAME} p{100 * share:.0f}")
        for share in (0.5, 0.9, 0.99)
    )
    return Panel(title, description, "s", tuple(queries), width=12)


def _bars(title: str, description: str, unit: str, expr: str) -> Panel:
    return Panel(title, description, unit, (Query(expr, NAME),), "bargauge", width=8, height=6)


NOW = Row(
    "Now",
    (
        _bars(
            "First token, p50",
            "Half of the requests had their first token within this time.",
            "s",
            quantile(0.5, TTFT, "chip"),
        ),
        _bars(
            "Time per token, p50",
            "Half of the requests had their further tokens at this pace or faster.",
            "s",
            quantile(0.5, TPOT, "chip"),
        ),
        _bars("Throughput", "Tokens generated a second.", "suffix: tok/s", THROUGHPUT),
        _bars("Hit ratio", "Share of prompt tokens found in the cache.", "percentunit", HITS),
        _bars("Utilization", "How busy the devices compute, mean.", "percentunit", UTILIZATION),
        _bars(
            "Requests running",
            "Chips compare fairly only under the same load.",
            "short",
            f"sum by (chip) ({series('anychip_requests_running')})",
        ),
    ),
)

OVER_TIME = Row(
    "Over time",
    (
        _quantiles("Time to first token (TTFT)", "From arrival to the first token.", TTFT),
        _quantiles(
            "Time per output token (TPOT)", "A request's mean time per token after its first.", TPOT
        ),
        Panel(
            "Throughput",
            "Tokens generated a second, all servers of a chip together.",
            "suffix: tok/s",
            (Query(THROUGHPUT, NAME),),
            width=12,
        ),
        Panel(
            "Throughput of one server",
            "The same, divided by the servers that are ready.",
            "suffix: tok/s",
            (Query(f"{THROUGHPUT} / sum by (chip) ({series('anychip_engine_ready')})", NAME),),
            width=12,
        ),
        Panel(
            "Hit ratio",
            "Share of prompt tokens whose KV was found.",
            "percentunit",
            (Query(HITS, NAME),),
            width=12,
        ),
        Panel(
            "Utilization",
            "How busy the devices compute, mean of a chip's servers. Chips that do not tell it "
            "are missing.",
            "percentunit",
            (Query(UTILIZATION, NAME),),
            width=12,
        ),
        Panel(
            "Waiting",
            "Requests that wait.",
            "short",
            (Query(f"sum by (chip) ({series('anychip_requests_waiting')})", NAME),),
            width=12,
        ),
        Panel(
            "Tokens per joule",
            "Tokens generated for each watt second, where the chip tells its power.",
            "short",
            (
                Query(
                    f"{THROUGHPUT} / sum by (chip) ({series('anychip_device_power_watts')})", NAME
                ),
            ),
            width=12,
        ),
    ),
)

CHIPS = Dashboard(
    "anychip-chips",
    "AnyChip: chips side by side",
    "Latency, throughput, hit ratio and utilization of each chip.",
    (NOW, OVER_TIME),
)
