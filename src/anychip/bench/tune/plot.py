"""The table as a picture: each configuration against the base, a panel a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anychip.bench.load.calls import LoadError
from anychip.bench.load.client import INSTALL

from .advice import MOST
from .judge import FIGURES, Interval, Series, interval, paired, verdict
from .kept import Kept
from .plan import BASE

_COLOURS = {"better": "tab:green", "worse": "tab:red", "noise": "tab:gray"}


def check() -> None:
    """LoadError without matplotlib: told before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise LoadError(f"the plot needs matplotlib: {INSTALL}") from error


def draw(kept: Kept, path: Path) -> None:
    """Write the picture. Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    bars = _bars(kept)
    keys = [key for key in FIGURES if any(key in each for _, each in bars)]
    size = (4 * max(1, len(keys)) + 3, 0.4 * len(bars) + 1.8)
    figure, axes = pyplot.subplots(
        1, max(1, len(keys)), figsize=size, sharey=True, squeeze=False, constrained_layout=True
    )
    for axis, key in zip(axes[0], keys, strict=False):
        _panel(axis, key, bars)
    axes[0][0].set_yticks(range(len(bars)), [label for label, _ in bars])
    axes[0][0].set_ylim(len(bars) - 0.5, -0.5)
    figure.suptitle(
        f"{kept.plan.load.trace} on {kept.fingerprint['chip']['name']}: against the base"
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


_Bars = list[tuple[str, dict[str, Interval]]]


def _bars(kept: Kept) -> _Bars:
    """label -> figure -> difference from the base of its pass, per cent."""
    found: _Bars = []
    for row in kept.rows:
        base = next(
            each.series
            for each in kept.rows
            if each.stage == row.stage and each.series.configuration == BASE
        )
        if row.series.configuration != BASE and row.series.values and base.values:
            again = " (second pass)" if row.stage == "together" else ""
            found.append((row.series.configuration.label + again, _shares(row.series, base)))
    return found


def _shares(one: Series, base: Series) -> dict[str, Interval]:
    means = {key: interval(values).value for key, values in base.values.items()}
    return {
        key: paired(one.values[key], base.values[key]).times(100)
        for key in one.values
        if means.get(key) and len(one.values[key]) > 1
    }


def _panel(axis: Any, key: str, bars: Sequence[tuple[str, dict[str, Interval]]]) -> None:
    figure = FIGURES[key]
    axis.axvline(0, color="black", linewidth=1)
    for place, (_, shares) in enumerate(bars):
        if key not in shares:
            continue
        found = shares[key]
        colour = _COLOURS[verdict(found, figure.better)]
        high = max(found.value, min(found.high, MOST))  # or one wide one would hide the others
        ends = [[found.value - found.low], [high - found.value]]
        axis.errorbar([found.value], [place], xerr=ends, fmt="o", color=colour, capsize=4)
    better = "right" if figure.better > 0 else "left"
    axis.set(title=f"{figure.name} ({better} is better)", xlabel="% against the base")
    axis.grid(axis="x", alpha=0.3)
