"""A replay as a picture: requests over time, latencies, lateness. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .calls import Answer
from .replay import Replay

BINS = 60


def draw(found: Replay, path: Path) -> None:
    """Write the plot. Raises ModuleNotFoundError without matplotlib, OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), constrained_layout=True)
    good = [answer for answer in found.run.answers if answer.failure is None]
    _over_time(axes[0][0], found.run.answers, found.figures.seconds)
    _spread(axes[0][1], [answer.ttft_s for answer in good], "TTFT")
    _spread(axes[1][0], [answer.tpot_s for answer in good], "TPOT")
    _lateness(axes[1][1], found.run.answers)
    loop = "open loop" if found.figures.loop == "open" else "CLOSED LOOP"
    figure.suptitle(f"{Path(found.file).name}, {found.served.model}: {loop}")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _over_time(axis: Any, answers: Sequence[Answer], seconds: float) -> None:
    edges = np.linspace(0, max(seconds, 1e-9), BINS + 1)
    width = edges[1] - edges[0]
    failed = [answer.sent_s for answer in answers if answer.failure is not None]
    for name, times in (
        ("due", [answer.scheduled_s for answer in answers]),
        ("sent", [answer.sent_s for answer in answers]),
        ("answered", [answer.end_s for answer in answers if answer.failure is None]),
        *([("failed", failed)] if failed else []),
    ):
        counts, _ = np.histogram(times, edges)
        axis.stairs(counts / width, edges, label=name)
    axis.set(title="requests over time", xlabel="s", ylabel="requests/s")
    axis.legend()


def _spread(axis: Any, values: Sequence[float | None], name: str) -> None:
    """Which share is at most so slow."""
    ordered = sorted(1000 * value for value in values if value is not None)
    axis.set(title=name, xlabel="ms", ylabel="share of requests")
    if ordered:
        axis.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post")


def _lateness(axis: Any, answers: Sequence[Answer]) -> None:
    late = [1000 * answer.lateness_s for answer in answers]
    axis.plot([answer.scheduled_s for answer in answers], late, ".", markersize=3)
    axis.set(title="lateness of sending", xlabel="due, s", ylabel="ms")
