"""What `anychip scan` found, as rows, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anychip.bench.load.bootstrap import Distribution, Estimate
from anychip.bench.scan_amounts import Composition
from anychip.bench.scan_found import FLAT, Found, Level

SCHEMA = 1
COLUMNS = (
    *("at once", "answers", "tokens/s", "x per doubling", "TTFT ms", "TPOT ms"),
    *("running", "a step", "chip", "saturates"),
)
LEGEND = (
    "Closed loop: each caller sends its next request when it has its answer, so the queues that "
    "arrivals of their own would make are not seen. tokens/s: output tokens while all callers were "
    "busy [95 % interval over slices of the time]. x per doubling: what twice the requests "
    "multiplied that by. TTFT, TPOT: median. running: requests that held a slot, mean. a step: "
    "tokens that it generated and tokens of prompts that it computed, mean. chip: share of the "
    "time that it was busy."
)


def rows(found: Found) -> list[tuple[str, ...]]:
    """Cells of the table, in the order of COLUMNS."""
    return [_row(level) for level in found.levels]


def _row(level: Level) -> tuple[str, ...]:
    figures = level.figures
    failed = figures.requests - figures.succeeded
    return (
        str(level.concurrency),
        f"{figures.succeeded}" + (f" ({failed} failed)" if failed else ""),
        _estimate(level.throughput, "{:,.1f}"),
        "-" if level.gain is None else _estimate(level.gain, "{:.2f}"),
        _median(figures.ttft),
        _median(figures.tpot),
        "-" if level.running is None else f"{level.running:.1f}",
        _step(level.composition),
        "-" if level.facts.chip is None else f"{level.facts.chip:.0%}",
        ", ".join(level.causes) or "-",
    )


def _estimate(value: Estimate, text: str) -> str:
    exact, low, high = (text.format(x) for x in (value.value, value.low, value.high))
    return f"{exact} [{low}, {high}]"


def _step(composition: Composition | None) -> str:
    if composition is None:
        return "-"
    return f"{composition.decoded:.1f} + {composition.prefilled:.1f}"


def _median(values: Distribution | None) -> str:
    return "-" if values is None else f"{1000 * values.p50.value:,.1f}"


def summary(found: Found) -> list[str]:
    """What it comes to, in lines."""
    lines = ["interrupted: what follows is of the levels before"] if found.interrupted else []
    if found.broken:
        lines.append(f"the scan ended early: {found.broken}; what follows is of the levels before")
    lines += [
        f"LOST: {one.concurrency} at once: the server went away ({one.why}), so it is not counted"
        for one in found.lost
    ]
    lines += [_flattens(found)]
    if found.step:
        lines.append(f"next: {found.step}")
    lines += _law(found)
    return lines + list(found.notes)


def _flattens(found: Found) -> str:
    told = f"{found.cause}: {found.text}" if found.text else found.cause
    if found.flat is None:
        last = found.levels[-1].concurrency
        line = f"it does not flatten up to {last} at once: each doubling gains x{FLAT:g} or more"
        if len(found.levels) == 1:
            line = "one level alone tells no gain: add levels to --concurrency"
        return line + (
            f"; what costs most there: {found.cause}: {found.text}" if found.text else ""
        )
    level = found.levels[found.flat]
    gained = "" if level.gain is None else f" (x{level.gain.value:.2f} per doubling)"
    where = f"it flattens at {level.concurrency} at once{gained}"
    return f"{where}; what saturates: {told}"


def _law(found: Found) -> list[str]:
    law = found.law
    if law is None:
        return []
    ceiling = "no ceiling" if law.ceiling is None else f"at most {law.ceiling:,.1f} tokens/s"
    peak = "no peak" if law.peak is None else f"a peak at {law.peak:,.0f} at once"
    return [
        f"universal scalability law: {law.rate:,.1f} tokens/s alone, contention "
        f"{law.contention:.3f}, coherency {law.coherency:.5f}: {peak}, {ceiling}; off by "
        f"{law.error:.0%} at the worst level"
    ]


def markdown(found: Found, asked: Sequence[str]) -> str:
    """The report for people. asked: what was scanned and how, in lines."""
    lines = [f"# anychip scan: {found.model}", "", *(f"* {line}" for line in asked), ""]
    lines += [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(row)} |" for row in rows(found)]
    lines += ["", LEGEND, "", *(f"* {line}" for line in summary(found))]
    told = [(level, text) for level in found.levels for text in level.texts]
    if told:
        lines += ["", "What saturates, level by level:", ""]
        lines += [f"* {level.concurrency} at once: {text}" for level, text in told]
    return "\n".join(lines) + "\n"


def as_json(found: Found, asked: Sequence[str]) -> str:
    """The report for machines."""
    told: dict[str, Any] = {"schema": SCHEMA, "loop": "closed", "asked": list(asked)}
    told |= msgspec.to_builtins(found)
    law = found.law
    if law is not None:
        told["law"] |= {"peak": law.peak, "ceiling": law.ceiling}
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"
