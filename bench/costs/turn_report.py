"""What Python does in a turn of the engine's loop, as tables and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costs.report import EMPTY, table
from costs.turns import Counts, Spent, Turn

TOP = 14
"""Functions that are told."""

PARTS = ("plan", "run", "commit", "loop")

HOW = """\
A turn of the engine's loop reads its socket, makes one step and tells the server of it. plan, run
and commit are the step's, without the launches; loop is the rest. Cold: behind launches that read
{evicted} MiB more, so that nothing of Python is left in the processor's caches. Times are medians
of each part by itself, in µs; counts are the same on every machine. Overlapped: between the
launches of two steps, where a step is booked while the next one runs, as servers do."""


@dataclass(frozen=True)
class Measured:
    """One model at one batch. overlapped: seconds between the launches of two steps, cold, where
    one is booked while the next runs. spent: by function, cold."""

    model: str
    batch: int
    hot: Turn
    cold: Turn
    overlapped: float
    counts: Counts
    spent: Sequence[Spent]


def report(found: Sequence[Measured], evicted_mib: int) -> str:
    """The whole of python_step.md."""
    parts = ["# What Python costs in a decode step", HOW.format(evicted=evicted_mib)]
    parts += [_times(found), _counts(found), *map(_spent, found), *map(_codes, found)]
    return "\n\n".join(parts) + "\n"


def _times(found: Sequence[Measured]) -> str:
    head = ["model", "batch", "caches", *PARTS, "Python", "native", "Python %"]
    rows = []
    for one in found:
        for name, turn in (("as they are", one.hot), ("cold", one.cold)):
            times = [*(getattr(turn, part) for part in PARTS), turn.python, turn.native]
            share = turn.python / (turn.python + turn.native)
            figures = [f"{seconds * 1e6:,.0f}" for seconds in times]
            rows.append([one.model, str(one.batch), name, *figures, f"{share * 100:.1f}"])
        gap = f"{one.overlapped * 1e6:,.0f}"
        blank = [EMPTY] * len(PARTS)
        rows.append([one.model, str(one.batch), "cold, overlapped", *blank, gap, EMPTY, EMPTY])
    return table(head, rows)


def _counts(found: Sequence[Measured]) -> str:
    head = ["model", "batch", "calls", "native calls", "bytecodes", "peak bytes"]
    rows = []
    for one in found:
        counts = one.counts
        numbers = (counts.calls, counts.native_calls, counts.bytecodes, counts.peak)
        rows.append([one.model, str(one.batch), *(f"{number:,}" for number in numbers)])
    return table(head, rows)


def _spent(one: Measured) -> str:
    """By a profile, which makes all of it slower: the shares count."""
    whole = sum(spent.seconds for spent in one.spent)
    rows = (
        [s.name, f"{s.calls:.1f}", f"{s.seconds * 1e6:.1f}", f"{s.seconds / whole * 100:.1f}"]
        for s in one.spent[:TOP]
    )
    title = f"## {one.model}, batch {one.batch}: own time, cold, profiled"
    return f"{title}\n\n{table(['function', 'calls', 'µs', '%'], rows)}"


def _codes(one: Measured) -> str:
    rows = ([name, f"{number:.0f}"] for name, number in list(one.counts.by_code.items())[:TOP])
    title = f"## {one.model}, batch {one.batch}: bytecodes"
    return f"{title}\n\n{table(['function', 'bytecodes'], rows)}"


def draw(found: Sequence[Measured], path: Path) -> None:
    """A bar for each model, batch and state of the caches. ModuleNotFoundError: no matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.75 * len(found)))
    names: list[str] = []
    for one in found:
        for name, turn in (("cold", one.cold), ("as they are", one.hot)):
            _bar(axes, len(names), turn, named=not names)
            names.append(f"{one.model}, batch {one.batch}, {name}")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(100, color="black", linestyle="--", linewidth=1)
    axes.set_xlabel("µs of Python a decode step (dashed: 100)")
    axes.legend(fontsize=8, loc="lower right")
    axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def _bar(axes: Any, place: int, turn: Turn, *, named: bool) -> None:
    left = 0.0
    for number, part in enumerate(PARTS):
        width = getattr(turn, part) * 1e6
        label = part if named else None
        axes.barh(place, width, left=left, height=0.7, color=f"C{number}", label=label)
        left += width
    axes.text(left, place, f" {left:,.0f}", va="center", fontsize=8)
