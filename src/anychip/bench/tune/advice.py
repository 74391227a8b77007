"""What to serve with, and why: from both passes to a command line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from .command import replaced
from .judge import FIGURES, Coupling, Interval, Series, coupling, interval, paired, verdict, winner
from .plan import BASE, Configuration, Plan

MOST = 999.0
"""Per cent: what reaches further says that nothing is known."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """configuration: what differs from the base. words: of `anychip serve`. reasons: sentences.
    coupling: None where there were not two to put together. final: all runs are made."""

    configuration: Configuration
    words: tuple[str, ...]
    reasons: tuple[str, ...]
    coupling: Coupling | None = None
    final: bool = True


def advise(plan: Plan, first: Sequence[Series], second: Sequence[Series]) -> Advice:
    """The second pass decides, in runs of its own: the best of many in the first one may have been
    lucky. Both have the base."""
    name = FIGURES[plan.objective].name
    if not second:
        text = f"nothing beats the base's {name} beyond noise in {plan.repeats} repeats"
        return _base(plan, [text, *_lost(first)])
    won, found = winner(second, plan.objective), coupling(second, plan.objective)
    told = [_coupling_text(found, plan.objective)] if found else []
    if won is None:
        text = f"what beat the base's {name} in the first pass did not when it was measured again"
        return _base(plan, [f"{text}: it was noise", *told])
    base = next(one for one in second if one.configuration == BASE)
    reasons = [f"{won.configuration.label}: {against(won, base, key)}" for key in _keys(plan, won)]
    few = [one for one in second if len(one.configuration.changes) > 1 and one is not won]
    if few:
        reasons.append("changing more together is not better beyond noise, so less is changed")
    return Advice(
        configuration=won.configuration,
        words=replaced(plan.base, won.configuration.changes),
        reasons=(*reasons, *told, *_lost(first)),
        coupling=found,
    )


def no_advice(plan: Plan) -> Advice:
    """Of runs that are not all there."""
    text = "not all runs are made, so nothing is recommended yet: go on with --resume"
    return Advice(configuration=BASE, words=plan.base, reasons=(text,), final=False)


def _base(plan: Plan, reasons: Sequence[str]) -> Advice:
    return Advice(configuration=BASE, words=plan.base, reasons=tuple(reasons))


def _keys(plan: Plan, one: Series) -> list[str]:
    """The objective first, then the others that were measured."""
    return [
        plan.objective,
        *(key for key in FIGURES if key in one.values and key != plan.objective),
    ]


def against(one: Series, base: Series, key: str) -> str:
    """A figure beside the base's: `throughput +41.0 % [+38.2, +43.8] better (12.0 to 17.0 ...)`."""
    figure = FIGURES[key]
    now, before = interval(one.values[key]).value, interval(base.values[key]).value
    found = paired(one.values[key], base.values[key])
    values = f"{before * figure.scale:,.4g} to {now * figure.scale:,.4g} {figure.unit}"
    return f"{figure.name} {percent(found, before)} {verdict(found, figure.better)} ({values})"


def percent(difference: Interval, base: float) -> str:
    """A share of the base's value; nothing can be a share of nothing."""
    if not base:
        return f"{difference.value:+.4g} from 0"
    found = difference.times(100)
    if math.isinf(found.high):
        return f"{found.value:+.1f} %"
    high = f"{found.high:+.1f}" if found.high < MOST else f"over +{MOST:.0f}"
    return f"{found.value:+.1f} % [{found.low:+.1f}, {high}]"


def _coupling_text(found: Coupling, objective: str) -> str:
    beyond, name = percent(found.beyond, 1.0), FIGURES[objective].name
    return f"coupling: {found.kind}: {name} is {beyond} better than the product of each alone"


def _lost(series: Sequence[Series]) -> list[str]:
    """Configurations that could not be judged, or lost calls."""
    found = []
    for one in series:
        if one.broken:
            line = one.broken.splitlines()[0]
            found.append(f"{one.configuration.label} could not run: {line}")
        elif one.failed:
            found.append(f"{one.configuration.label}: {one.failed} calls got no whole answer")
    return found
