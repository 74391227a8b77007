"""The device: is it busy, has it room, and what slows it that nobody sees."""

from __future__ import annotations

from board_schema import Dashboard, Panel, Query, Row, rate, series

BY = "chip, model_name, instance"
NAME = "{{chip}} {{instance}}"
# Operators are timed in few steps, so that a short window would often hold none.
TIMED = "[15m]"


def _by_operator(counter: str) -> str:
    return f"sum by (operator, timing) (increase({series(counter)}{TIMED}))"


FIRST = Row(
    "First look",
    (
        Panel(
            "Utilization",
            "How busy the device computes. Low while requests wait: look at the scheduler (the "
            "engine's dashboard). High: look at the operators below.",
            "percentunit",
            (Query(series("anychip_device_utilization_ratio"), NAME),),
            kind="stat",
            width=6,
            height=5,
        ),
        Panel(
            "Memory in use",
            "Used share of the device's memory, by whomever.",
            "percentunit",
            (
                Query(
                    f"{series('anychip_device_memory_used_bytes')}"
                    f" / {series('anychip_device_memory_capacity_bytes')}",
                    NAME,
                ),
            ),
            kind="stat",
            width=6,
            height=5,
            limit=0.95,
        ),
        Panel(
            "Headroom",
            "The largest single allocation that would succeed now.",
            "bytes",
            (Query(series("anychip_device_memory_headroom_bytes"), NAME),),
            kind="stat",
            width=6,
            height=5,
        ),
        Panel(
            "Weights and KV cache",
            "Their share of the device's memory. Where the host's memory backs the device, pages "
            "begin to move above 85 %, which shows as jitter.",
            "percentunit",
            (Query(series("anychip_device_memory_committed_ratio"), NAME),),
            kind="stat",
            width=6,
            height=5,
            limit=0.85,
        ),
    ),
)

COMPUTE = Row(
    "Compute",
    (
        Panel(
            "Utilization",
            "How busy the device computes; of a processor, the cores that the engine may use.",
            "percentunit",
            (Query(series("anychip_device_utilization_ratio"), NAME),),
        ),
        Panel(
            "Where the engine's time goes",
            "Seconds in each second: waiting for the chip, and the engine's own Python by phase. "
            "What is missing to one is idle.",
            "percentunit",
            (
                Query(f"sum by ({BY}) ({rate('anychip_chip_seconds_total')})", f"{NAME} chip"),
                Query(
                    f"sum by ({BY}, phase) ({rate('anychip_python_seconds_total')})",
                    f"{NAME} {{{{phase}}}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Operators' share of timed steps",
            "Of the last 15 minutes, all chosen servers together. One step of "
            "--operator-timing-interval is timed call by call; timing says by which clock.",
            "percentunit",
            (
                Query(
                    f"{_by_operator('anychip_device_operator_seconds_total')} / ignoring(operator, "
                    "timing) group_left() sum(increase("
                    f"{series('anychip_device_operator_seconds_total')}{TIMED}))",
                    "{{operator}} ({{timing}})",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "One call of an operator",
            "Mean time of a call in timed steps, the slowest ten of the last 15 minutes.",
            "s",
            (
                Query(
                    f"topk(10, {_by_operator('anychip_device_operator_seconds_total')}"
                    f" / {_by_operator('anychip_device_operator_calls_total')})",
                    "{{operator}} ({{timing}})",
                ),
            ),
        ),
        Panel(
            "Temperature",
            "Where the chip tells it.",
            "celsius",
            (Query(series("anychip_device_temperature_celsius"), NAME),),
        ),
        Panel(
            "Power",
            "Where the chip tells it.",
            "watt",
            (Query(series("anychip_device_power_watts"), NAME),),
        ),
    ),
)

MEMORY = Row(
    "Memory",
    (
        Panel(
            "Device memory",
            "Used and free. The label source (in the legend) says who told the number.",
            "bytes",
            (
                Query(series("anychip_device_memory_used_bytes"), f"{NAME} used ({{{{source}}}})"),
                Query(series("anychip_device_memory_free_bytes"), f"{NAME} free ({{{{source}}}})"),
            ),
            stacked=True,
        ),
        Panel(
            "Headroom",
            "The largest single allocation that would succeed now. Far less than what is free: "
            "the memory is in pieces.",
            "bytes",
            (Query(series("anychip_device_memory_headroom_bytes"), NAME),),
        ),
        Panel(
            "Plan of the memory",
            "What the start gave to weights, cache pages and workspace.",
            "bytes",
            (Query(series("anychip_device_memory_planned_bytes"), f"{NAME} {{{{kind}}}}"),),
            stacked=True,
        ),
        Panel(
            "Weights and KV cache",
            "Their share of the device's memory; the line is where the alert begins.",
            "percentunit",
            (Query(series("anychip_device_memory_committed_ratio"), NAME),),
            limit=0.85,
        ),
        Panel(
            "Pool",
            "Blocks handed out, what was asked for of them, and blocks kept for reuse.",
            "bytes",
            (
                Query(series("anychip_device_pool_used_bytes"), f"{NAME} used"),
                Query(series("anychip_device_pool_asked_bytes"), f"{NAME} asked"),
                Query(series("anychip_device_pool_cached_bytes"), f"{NAME} cached"),
            ),
        ),
        Panel(
            "Fragmentation of the pool",
            "Share of the handed-out bytes that nobody asked for; the line is where the alert "
            "begins.",
            "percentunit",
            (Query(series("anychip_device_pool_fragmentation_ratio"), NAME),),
            limit=0.3,
        ),
    ),
)

COPIES = Row(
    "Copies, the host, and hidden causes of jitter",
    (
        Panel(
            "Bytes copied",
            "Between host and device, by direction.",
            "Bps",
            (Query(rate("anychip_device_copy_bytes_total"), f"{NAME} {{{{direction}}}}"),),
        ),
        Panel(
            "Time in copies",
            "Seconds in each second; 0 where the chip does not measure it.",
            "percentunit",
            (Query(rate("anychip_device_copy_seconds_total"), f"{NAME} {{{{direction}}}}"),),
        ),
        Panel(
            "Operators on the host",
            "Calls a second that the host computed in the chip's place.",
            "ops",
            (Query(rate("anychip_host_operator_calls_total"), NAME),),
        ),
        Panel(
            "Major page faults",
            "Pages that the engine process had to read from a disk, a second. Beyond the start "
            "there should be none.",
            "ops",
            (Query(rate("anychip_engine_major_page_faults_total"), NAME),),
        ),
        Panel(
            "Swapped out",
            "Memory of the engine process that lies in swap.",
            "bytes",
            (Query(series("anychip_engine_swap_bytes"), NAME),),
        ),
        Panel(
            "Age of these figures",
            "Seconds since the device was read, and since the engine was heard.",
            "s",
            (Query(series("anychip_snapshot_age_seconds"), f"{NAME} {{{{source}}}}"),),
        ),
    ),
)

DEVICE = Dashboard(
    "anychip-device",
    "AnyChip: device",
    "Is the device busy, has it room, and what slows it that nobody sees.",
    (FIRST, COMPUTE, MEMORY, COPIES),
)
