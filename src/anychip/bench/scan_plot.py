"""A PNG of a scan: throughput with the fitted law, and what was busy. By matplotlib, an extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anychip.bench.scan_found import Found

_SHARES = (
    *("chip", "lock", "scheduler", "http", "tokenizer", "queue_limit", "kv_memory"),
    *("interpreter", "page_faults", "other_programs", "load_generator"),
)
_LEAST_SHOWN = 0.05
_POINTS = 200


def draw(found: Found, path: Path) -> None:
    """Write the picture. Raises ModuleNotFoundError without matplotlib, OSError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _throughput(left, found)
    _shares(right, found)
    figure.suptitle(f"anychip scan: {found.model} (closed loop)")
    figure.savefig(path, dpi=120)


def _throughput(axes: Any, found: Found) -> None:
    levels = found.levels
    n = [level.concurrency for level in levels]
    values = [level.throughput for level in levels]
    below = [value.value - value.low for value in values]
    above = [value.high - value.value for value in values]
    y = [value.value for value in values]
    axes.errorbar(n, y, yerr=[below, above], fmt="o", capsize=3, label="measured")
    axes.plot(n, [y[0] * count / n[0] for count in n], ":", color="grey", label="in proportion")
    if found.law is not None:
        line = np.geomspace(n[0], n[-1], _POINTS)
        axes.plot(line, [found.law.at(count) for count in line], label="scalability law")
    if found.flat is not None:
        flat = levels[found.flat].concurrency
        axes.axvline(flat, color="red", alpha=0.4, label=f"flattens: {found.cause}"[:60])
    axes.set(xscale="log", xlabel="requests at once", ylabel="output tokens/s")
    axes.set_ylim(0, 1.25 * max(value.high for value in values) or 1)
    _label(axes, n)


def _shares(axes: Any, found: Found) -> None:
    n = [level.concurrency for level in found.levels]
    for name in _SHARES:
        shares = [getattr(level.facts, name) for level in found.levels]
        pairs = zip(n, shares, strict=True)
        known = [(count, share) for count, share in pairs if share is not None]
        if any(share >= _LEAST_SHOWN for _, share in known):
            axes.plot(*zip(*known, strict=True), "o-", label=name.replace("_", " "))
    axes.set(xscale="log", xlabel="requests at once", ylabel="share of the time", ylim=(0, 1.05))
    _label(axes, n)


def _label(axes: Any, n: list[int]) -> None:
    axes.set_xticks(n, [str(count) for count in n])
    axes.minorticks_off()
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
