"""PNG plots of a race, by matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from race.figures import Results, Spread, rounded
from race.targets import OURS

INSTALL = f"plots need matplotlib: {sys.executable} -m pip install matplotlib"


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the plots for which there are results. Raises ModuleNotFoundError (see INSTALL)."""
    import matplotlib as mpl

    mpl.use("Agg")
    drawn = [_streams(results, folder), _latencies(results, folder)]
    return [path for path in drawn if path is not None]


def _streams(results: Results, folder: Path) -> Path | None:
    """Output tokens a second against the streams at once, least and most as a band."""
    found = {engine: results.streams(engine) for engine in results.engines}
    found = {engine: spreads for engine, spreads in found.items() if spreads}
    if not found:
        return None
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for engine, spreads in found.items():
        counts = list(spreads)
        line = axes.plot(counts, _medians(spreads.values()), marker="o", **_style(engine))[0]
        low, high = [s.least for s in spreads.values()], [s.most for s in spreads.values()]
        axes.fill_between(counts, low, high, alpha=0.15, color=line.get_color())
    axes.set_xscale("log", base=2)
    ticks = sorted({count for spreads in found.values() for count in spreads})
    axes.set_xticks(ticks, [str(count) for count in ticks])
    axes.set_xlabel("streams at once (64 tokens in, 64 out)")
    axes.set_ylabel("output tokens a second")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return _saved(figure, folder / "throughput.png")


LATENCIES = (
    ("W1 first token, ms", "W1", "first_mean_ms"),
    ("W2 mean first token, ms", "W2", "first_mean_ms"),
    ("W4 first token, ms", "W4", "first_mean_ms"),
    ("W1 between tokens, ms", "W1", "token_mean_ms"),
    ("W2 between tokens, ms", "W2", "token_mean_ms"),
)

ACROSS = 3
"""Plots in a row."""


def _latencies(results: Results, folder: Path) -> Path | None:
    """Bars of the time to the first token and between tokens; whiskers from least to most."""
    shown = []
    for title, work, key in LATENCIES:
        found = [(e, s) for e in results.engines if (s := results.spread(e, work, key))]
        if found:
            shown.append((title, found))
    if not shown:
        return None
    from matplotlib import pyplot

    lines = -(-len(shown) // ACROSS)
    size = (5 * ACROSS, lines * (1.2 + 0.35 * len(results.engines)))
    figure, grid = pyplot.subplots(lines, ACROSS, figsize=size, squeeze=False)
    places = list(grid.flat)
    for place, (title, found) in zip(places, shown, strict=False):
        _bars(place, title, found)
    for place in places[len(shown) :]:
        place.set_visible(False)
    return _saved(figure, folder / "latency.png")


def _bars(axes: Any, title: str, found: Sequence[tuple[str, Spread]]) -> None:
    names, spreads = [name for name, _ in found], [spread for _, spread in found]
    below = [s.median - s.least for s in spreads]
    above = [s.most - s.median for s in spreads]
    colours = ["tab:blue" if name.startswith(OURS) else "tab:gray" for name in names]
    bars = axes.barh(names, _medians(spreads), xerr=[below, above], color=colours, capsize=3)
    axes.bar_label(bars, [rounded(s.median) for s in spreads], padding=4, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.2)


def _medians(spreads: Any) -> list[float]:
    return [spread.median for spread in spreads]


def _style(engine: str) -> dict[str, Any]:
    ours = engine.startswith(OURS)
    return {"label": engine, "linestyle": "-" if ours else "--", "linewidth": 2 if ours else 1.2}


def _saved(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    return path
