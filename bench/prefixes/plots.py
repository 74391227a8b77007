"""A PNG plot of hit rates against the room, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefixes.results import Results

INSTALL = "the plot needs matplotlib: pip install matplotlib"


def draw(results: Results, path: Path) -> None:
    """Write the plot. Raises ModuleNotFoundError (see INSTALL)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    titles = ("the trace, once", f"the trace, time {results.times}, about other things each time")
    for axes, title, last in zip(panels, titles, (False, True), strict=True):
        for number, policy in enumerate(results.policies):
            points = [point for point in results.points if point.policy == policy]
            rates = [point.last_rate if last else point.first_rate for point in points]
            _line(axes, [point.room for point in points], rates, policy, number)
        axes.axhline(100 * results.best_rate, color="0.4", linestyle="--", label="best possible")
        _finish(axes, title, [point.room for point in points])
    panels[0].set_ylabel("prompt tokens found in the cache, %")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _line(
    axes: Any, rooms: Sequence[float], rates: Sequence[float], name: str, number: int
) -> None:
    # Policies often agree: the later line is narrower, so that the earlier one is seen behind it.
    width = (5, 3.2, 1.5, 1)[min(number, 3)]
    percent = [100 * rate for rate in rates]
    shares = [100 * room for room in rooms]
    axes.plot(shares, percent, marker="o", markersize=width + 2, linewidth=width, label=name)


def _finish(axes: Any, title: str, rooms: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks([100 * room for room in rooms], [f"{100 * room:g}" for room in rooms])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("room, % of all that the trace could leave in the cache")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
