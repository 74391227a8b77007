"""The tables as rows of text, and the report in Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .advice import percent
from .judge import FIGURES, Series, interval, paired, verdict
from .kept import Comparison, Kept
from .plan import BASE, Pass, Variable

STAGES: Sequence[Pass] = ("one by one", "together")
TITLES = {
    "one by one": "one variable at a time",
    "together": "second pass: the best of each, again and together",
}

COMPARED = ("pass", "configuration", "figure", "then", "now", "change", "verdict")


def columns(kept: Kept) -> tuple[str, ...]:
    """Of the tables of both passes."""
    names = [f"{FIGURES[key].name}, {FIGURES[key].unit}" for key in _figures(kept)]
    return ("configuration", *(text for name in names for text in (name, "against the base")))


def rows(kept: Kept, stage: Pass) -> list[tuple[str, ...]]:
    """One for each configuration; none where the pass was not made."""
    found = [row.series for row in kept.rows if row.stage == stage]
    base = next((one for one in found if one.configuration == BASE and one.values), None)
    return [] if base is None else [_row(kept, one, base) for one in found]


def _figures(kept: Kept) -> list[str]:
    return [key for key in FIGURES if any(key in row.series.values for row in kept.rows)]


def _row(kept: Kept, one: Series, base: Series) -> tuple[str, ...]:
    label = one.configuration.label
    if one.failed:
        label += f" ({one.failed} calls failed)"
    if one.broken:
        return (label, "could not run", *[""] * (2 * len(_figures(kept)) - 1))
    cells = [cell for key in _figures(kept) for cell in _cells(one, base, key)]
    return (label, *cells)


def _cells(one: Series, base: Series, key: str) -> tuple[str, str]:
    if key not in one.values:
        return "-", "-"
    figure = FIGURES[key]
    found = interval(one.values[key]).times(figure.scale)
    shown = number(found.value)
    if len(one.values[key]) > 1:
        shown += f" [{number(max(0.0, found.low))}, {number(found.high)}]"
    if one is base or key not in base.values:
        return shown, ""
    difference, before = paired(one.values[key], base.values[key]), interval(base.values[key]).value
    return shown, f"{percent(difference, before)} {verdict(difference, figure.better)}"


def number(value: float) -> str:
    """Four digits, more where they stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def command(kept: Kept) -> str:
    """What is recommended, as a line for a shell."""
    return shlex.join(["anychip", "serve", *kept.advice.words])


def head(kept: Kept) -> list[str]:
    """What was measured, a line each; a doctor that was overridden comes first."""
    plan, load = kept.plan, kept.plan.load
    loud = [f"THE DOCTOR FOUND THIS CHIP NOT SOUND: {kept.doctor}"] if kept.forced else []
    device = kept.budget.device or "device"
    return [
        *loud,
        f"{kept.date}, chip {kept.fingerprint['chip']['name']} ({device}), fingerprint"
        f" {plan.fingerprint_id}, model {plan.model}",
        f"base: {shlex.join(['anychip', 'serve', *plan.base])}",
        f"load: {load.requests:,} requests of {load.trace} ({load.digest}), open loop at"
        f" {load.speed:g} times its speed, {load.scaling}; {load.prompt_tokens:,} tokens in,"
        f" {load.answer_tokens:,} out; {plan.repeats} repeats",
        *(_varied(variable) for variable in plan.variables),
        *([] if kept.forced else [kept.doctor]),
        *kept.budget.told(),
    ]


def _varied(variable: Variable) -> str:
    values = ", ".join(variable.values) or "nothing else fits"
    return f"varied: {variable.flag}: {variable.base} (base), {values}"


def closing(kept: Kept) -> list[str]:
    """Notes, the recommendation and its reasons, the command line last."""
    if not kept.advice.final:
        return [*kept.notes, *kept.advice.reasons]
    best = "the base" if kept.advice.configuration == BASE else kept.advice.configuration.label
    return [
        *kept.notes,
        f"recommended: {best}",
        *(f"  {reason}" for reason in kept.advice.reasons),
        command(kept),
    ]


def compared_rows(found: Comparison) -> list[tuple[str, ...]]:
    """One for each figure of each configuration that both have."""
    table = []
    for change in found.changes:
        figure = FIGURES[change.figure]
        values = [number(each.value * figure.scale) for each in (change.before, change.now)]
        name = f"{figure.name}, {figure.unit}"
        table.append(
            (change.stage, change.configuration, name, *values, change.percent, change.verdict)
        )
    return table


def compared_head(found: Comparison) -> list[str]:
    """What else changed, and what cannot be compared."""
    facts = found.facts or ("machine, chip, versions, model and base are the same",)
    alone = [f"only in one of both: {', '.join(found.alone)}"] if found.alone else []
    return [f"{found.before}, compared with {found.now}", *facts, *alone]


def markdown(kept: Kept, found: Comparison | None = None) -> str:
    """The whole report."""
    parts = ["# anychip tune", _list(head(kept))]
    for stage in STAGES:
        if lines := rows(kept, stage):
            parts += [
                f"## {TITLES[stage][0].upper()}{TITLES[stage][1:]}",
                _grid(columns(kept), lines),
            ]
    *notes, line = closing(kept)
    parts += ["## Recommended", _list(notes), f"```\n{line}\n```"]
    if found is not None:
        parts += ["## Compared", _list(compared_head(found)), _grid(COMPARED, compared_rows(found))]
    return "\n\n".join(parts) + "\n"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line.strip()}" for line in lines)


def _grid(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    table = [names, ["---"] * len(names), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)
