"""The engine's dashboard, second half: steps, errors, processes."""

from __future__ import annotations

from board_schema import Panel, Query, Row, mean, quantile, rate, series

BY = "chip, model_name, instance"
NAME = "{{chip}} {{instance}}"

STEPS = Row(
    "Steps",
    (
        Panel(
            "Time of a step, mean",
            "From its launch to its tokens. prefill: no row decodes. decode: every row does.",
            "s",
            (Query(mean("anychip_step_seconds", f"{BY}, phase"), f"{NAME} {{{{phase}}}}"),),
        ),
        Panel(
            "Time of a step, p99",
            "Far above the mean: look at page faults, swap and the host's other work.",
            "s",
            (
                Query(
                    quantile(0.99, "anychip_step_seconds", f"{BY}, phase"),
                    f"{NAME} {{{{phase}}}}",
                ),
            ),
        ),
        Panel(
            "Steps a second",
            "Steps of the engine.",
            "ops",
            (Query(rate("anychip_steps_total"), NAME),),
        ),
        Panel(
            "Tokens computed",
            "Tokens a second of all steps, by phase.",
            "suffix: tok/s",
            (Query(rate("anychip_step_tokens_total"), f"{NAME} {{{{phase}}}}"),),
            stacked=True,
        ),
        Panel(
            "Rows of a step",
            "Mean number of rows by phase: the batch.",
            "short",
            (
                Query(
                    f"sum by ({BY}, phase) ({rate('anychip_step_rows_total')}) / ignoring(phase)"
                    f" group_left() sum by ({BY}) ({rate('anychip_steps_total')})",
                    f"{NAME} {{{{phase}}}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Size of a step, p90",
            "Rows and tokens that nine of ten steps do not exceed.",
            "short",
            (
                Query(quantile(0.9, "anychip_step_batch_rows", BY), f"{NAME} rows"),
                Query(quantile(0.9, "anychip_step_batch_tokens", BY), f"{NAME} tokens"),
            ),
        ),
        Panel(
            "The engine's own time in a step",
            "Mean Python seconds of a step by phase. Where it nears the time of a step, the "
            "scheduler is what is slow.",
            "s",
            (
                Query(
                    f"sum by ({BY}, phase) ({rate('anychip_python_seconds_total')})"
                    f" / ignoring(phase) group_left() sum by ({BY})"
                    f" ({rate('anychip_steps_total')})",
                    f"{NAME} {{{{phase}}}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Grammars",
            "p90 of the time to compile one, and the mean time of a step's masks.",
            "s",
            (
                Query(quantile(0.9, "anychip_grammar_compile_seconds", BY), f"{NAME} compile"),
                Query(mean("anychip_grammar_mask_seconds", BY), f"{NAME} masks"),
            ),
        ),
    ),
)

ERRORS = Row(
    "Errors",
    (
        Panel(
            "HTTP responses",
            "A second, by status. 4xx: the client's request was wrong. 5xx: it was not.",
            "reqps",
            (
                Query(
                    f"sum by ({BY}, status) ({rate('anychip_http_responses_total')})",
                    f"{NAME} {{{{status}}}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Errors of the chip",
            "So far, by layer and kind. Empty where there were none.",
            "short",
            (Query(series("anychip_chip_errors_total"), f"{NAME} {{{{layer}}}} {{{{kind}}}}"),),
            stacked=True,
        ),
        Panel(
            "What must stay at zero",
            "Deaths of the engine process, broken invariants of the scheduler, figures that could "
            "not be taken; since the server started.",
            "short",
            (
                Query(series("anychip_engine_deaths_total"), f"{NAME} deaths"),
                Query(series("anychip_check_violations_total"), f"{NAME} violations"),
                Query(series("anychip_telemetry_errors_total"), f"{NAME} telemetry"),
            ),
        ),
    ),
)

PROCESSES = Row(
    "Processes",
    (
        Panel(
            "Processor time",
            "Cores in use: the HTTP process and the engine's. A server process near 1 is the "
            "bottleneck.",
            "short",
            (Query(rate("anychip_process_cpu_seconds_total"), f"{NAME} {{{{process}}}}"),),
        ),
        Panel(
            "Resident memory",
            "RAM of both processes.",
            "bytes",
            (Query(series("anychip_process_resident_memory_bytes"), f"{NAME} {{{{process}}}}"),),
        ),
        Panel(
            "Requests at the door, and age of the figures",
            "HTTP requests that are being answered; seconds since the engine was heard and the "
            "device was read.",
            "short",
            (
                Query(series("anychip_http_requests_active"), f"{NAME} active"),
                Query(series("anychip_snapshot_age_seconds"), f"{NAME} age {{{{source}}}}"),
            ),
        ),
    ),
)
