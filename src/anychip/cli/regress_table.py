"""The tables of `anychip regress`: models, or every case, as many columns as there is room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from anychip.bench.regress_report import COLUMNS, TEXTS, Report, rows, spreads

if TYPE_CHECKING:
    from rich.console import Console

    from anychip.bench.regress_judge import Outcome
    from anychip.bench.regress_report import Pair

ANY = 10_000
"""Columns of a console where everything fits."""

VERDICT = 9
"""Columns that a verdict has at least; it goes on in the next line."""

Rows = Sequence[tuple[str, ...]]


def draw(console: Console, report: Report, *, verbose: bool) -> None:
    """Print a line for each model, or for each case. A figure is never cut: where the console is
    narrower than the figures, its lines are too long for it."""
    tables = [_wide(report), _narrow(report)] if verbose else [_models(report)]
    anywhere = console.options.update(max_width=ANY)
    fitting = (
        table
        for table in tables
        if console.measure(table, options=anywhere).maximum <= console.width
    )
    table = next(fitting, tables[-1])
    least = console.measure(table, options=anywhere).minimum  # with the verdict folded
    table.title = f"{report.backend}, fingerprint {report.fingerprint_id}"
    console.width = max(console.width, least)
    console.print(table)


def _wide(report: Report) -> Table:
    """All that is known."""
    found = rows(report)
    table = _table(COLUMNS, [(*row[:-1], _short(row[-1])) for row in found])
    table.caption = Text("speeds: median [interval] / the baseline's; each column: --output")
    return table


def _narrow(report: Report) -> Table:
    """Without dtype, baseline and intervals; on two lines."""
    names = ("case", "deviation", "TTFT", "TPOT", "tokens/s", "verdict")
    found = [
        (
            row[0],
            f"{row[2]}\n/{row[4]}",
            *(_two(pair, text) for pair, text in zip(spreads(outcome), TEXTS, strict=True)),
            _short(row[-1]),
        )
        for row, outcome in zip(rows(report), report.outcomes, strict=True)
    ]
    table = _table(names, found)
    table.caption = (
        "below each deviation its limit, below each speed the baseline's; TTFT, TPOT: milliseconds"
    )
    return table


def _two(pair: Pair, text: str) -> str:
    now, before = pair
    shown = "-" if now is None else text.format(now.median)
    return shown if before is None else f"{shown}\n/{text.format(before.median)}"


def _short(verdict: str) -> str:
    """Reasons stand in the list below the table."""
    return "worse" if verdict.startswith("worse") else verdict


def _models(report: Report) -> Table:
    """A row for each model."""
    names = ("model", "cases", "deviation / limit", "perplexity", "speed", "verdict")
    groups = groupby(report.outcomes, key=lambda outcome: outcome.key.partition("/")[0])
    table = _table(names, [_model(name, list(group)) for name, group in groups])
    table.caption = (
        "deviation: of the case nearest to its limit; perplexity: its largest change against the "
        "oracle's; speed: least share of the baseline's; each case: --verbose"
    )
    return table


def _model(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    nearest = max(outcomes, key=_used)
    shares = [share for outcome in outcomes for share in _shares(outcome)]
    changes = [o.now.perplexity.change for o in outcomes if o.now.perplexity is not None]
    worse = sum(not outcome.ok for outcome in outcomes)
    notes = sorted({note for outcome in outcomes for note in outcome.notes})
    verdict = f"{worse} worse" if worse else "ok"
    return (
        name,
        str(len(outcomes)),
        f"{nearest.now.deviation:.3g} / {nearest.limit:.3g}",
        f"{max(changes, key=abs):+.1e}" if changes else "-",
        f"{min(shares):.2f}" if shares else "-",
        verdict + (f" ({', '.join(notes)})" if notes else ""),
    )


def _used(outcome: Outcome) -> float:
    """Share of the limit; what is not a number is worst."""
    share = outcome.now.deviation / outcome.limit
    return math.inf if math.isnan(share) else share


def _shares(outcome: Outcome) -> Iterable[float]:
    """Of the baseline's speed: more is faster."""
    ttft, tpot, throughput = spreads(outcome)
    for new, old in (ttft[::-1], tpot[::-1], throughput):
        if new is not None and old is not None:
            yield new.median / old.median


def _table(names: Sequence[str], found: Rows) -> Table:
    """Columns of figures keep their width; the verdict, the last one, takes what is left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(names[:-1]):
        cells = [name, *(line for row in found for line in row[index].split("\n"))]
        table.add_column(name, no_wrap=True, min_width=max(map(len, cells)))
    table.add_column(names[-1], overflow="fold", min_width=VERDICT)
    for row in found:
        table.add_row(*(Text(cell) for cell in row))
    return table
