"""A router: what it passes on to whom and why, what fails, and how loaded the workers are."""

from __future__ import annotations

from board_schema import ROUTERS, Dashboard, Panel, Query, Row, quantile, rate, series

# The chip stands beside the name: what a line means depends on it.
BY, WORKER = "worker, chip", "{{worker}} ({{chip}})"
CALLS, TRIES = "anychip_router_requests_total", "anychip_router_tries_total"
FIRST_BYTE = "anychip_router_first_byte_seconds"


def _by(label: str, metric: str, labels: str = "") -> str:
    return f"sum by ({label}) ({rate(metric, labels)})"


def _lines(title: str, description: str, unit: str, expr: str, legend: str = WORKER) -> Panel:
    return Panel(title, description, unit, (Query(expr, legend),), width=12)


NOW = Row(
    "Now",
    (
        Panel(
            "Workers ready",
            "Workers that calls may be given to.",
            "short",
            (Query(f"sum({series('anychip_router_workers_ready')})", "ready"),),
            "stat",
            width=6,
            height=4,
        ),
        Panel(
            "Calls in flight",
            "Calls that workers are answering.",
            "short",
            (Query(f"sum({series('anychip_router_worker_calls')})", "calls"),),
            "stat",
            width=6,
            height=4,
        ),
        Panel(
            "Calls",
            "Calls that came to their end, a second.",
            "reqps",
            (Query(f"sum({rate(CALLS)})", "calls"),),
            "stat",
            width=6,
            height=4,
        ),
        Panel(
            "Believed hits",
            "Share of prompt tokens that went where the policy believed them to be cached.",
            "percentunit",
            (
                Query(
                    f"sum({rate('anychip_router_matched_prompt_tokens_total')})"
                    f" / sum({rate('anychip_router_prompt_tokens_total')})",
                    "matched",
                ),
            ),
            "stat",
            width=6,
            height=4,
        ),
    ),
)

PASSED = Row(
    "Calls passed on",
    (
        _lines(
            "Calls by chip",
            "What each kind of chip answered, a second; none: nobody did.",
            "reqps",
            _by("chip", CALLS),
            "{{chip}}",
        ),
        _lines("Calls by worker", "Who answered, a second.", "reqps", _by(BY, CALLS)),
        _lines(
            "Calls by status",
            "What clients were told, a second; none: they left before.",
            "reqps",
            _by("status", CALLS),
            "{{status}}",
        ),
        Panel(
            "First byte",
            "From giving a call to a worker to the first byte of its answer.",
            "s",
            tuple(
                Query(quantile(share, FIRST_BYTE, BY), f"{WORKER} p{100 * share:.0f}")
                for share in (0.5, 0.99)
            ),
            width=12,
        ),
        _lines(
            "Choices",
            "Why workers were chosen, a second.",
            "reqps",
            _by("why", "anychip_router_choices_total"),
            "{{why}}",
        ),
    ),
)

LOAD = Row(
    "Load",
    (
        _lines(
            "Share of the window",
            "Calls of a worker as a share of what it runs at once; above 1 they queue there.",
            "percentunit",
            f"sum by ({BY}) ({series('anychip_router_worker_calls')})"
            f" / sum by ({BY}) ({series('anychip_router_worker_window')})",
        ),
        _lines(
            "Prompt tokens in flight",
            "Prompt tokens of the calls that a worker is answering.",
            "short",
            f"sum by ({BY}) ({series('anychip_router_worker_prompt_tokens')})",
        ),
    ),
)

TROUBLE = Row(
    "Trouble",
    (
        _lines(
            "Workers by state",
            "How many are in each state; sick ones are given nothing.",
            "short",
            f"sum by (state) ({series('anychip_router_worker_state')})",
            "{{state}}",
        ),
        _lines(
            "Tries that failed",
            "By how they failed, a second; left: the client did.",
            "reqps",
            _by(f"{BY}, result", TRIES, 'result!="answered"'),
            f"{WORKER} {{{{result}}}}",
        ),
        _lines(
            "Retries",
            "Calls given to another worker, by why, a second.",
            "reqps",
            _by("reason", "anychip_router_retries_total"),
            "{{reason}}",
        ),
        _lines(
            "Breaker openings",
            "Workers taken out for failing too often in a row, a second.",
            "ops",
            _by(BY, "anychip_router_breaker_openings_total"),
        ),
        _lines(
            "Rule fallbacks",
            "Calls given to others than their rule's workers, all of which were away, a second.",
            "reqps",
            _by("rule", "anychip_router_rule_fallbacks_total"),
            "{{rule}}",
        ),
        _lines(
            "Telemetry errors",
            "Figures that could not be taken, a second; the log has the first.",
            "ops",
            f"sum({rate('anychip_router_telemetry_errors_total')})",
            "errors",
        ),
    ),
)

ROUTER = Dashboard(
    "anychip-router",
    "AnyChip: router",
    "What a router passes on to whom, why, and what fails.",
    (NOW, PASSED, LOAD, TROUBLE),
    ROUTERS,
)
