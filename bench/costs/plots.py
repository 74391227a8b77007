"""PNG plots of what steps cost, by matplotlib: measured as lines, the limit dashed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from costs.results import Measured, Point, Results

INSTALL = f"plots need matplotlib: {sys.executable} -m pip install matplotlib"
Size = Callable[[Point], int]


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the plots for which there are results. Raises ModuleNotFoundError (see INSTALL)."""
    import matplotlib as mpl

    mpl.use("Agg")
    models = [model for model in results.models if model.decodes()]
    if not models:
        return []
    names = ("batch", "context")
    drawn = [
        _decodes(models, names, (_batch, _context), folder / "decode_batch.png"),
        _decodes(models, names[::-1], (_context, _batch), folder / "decode_context.png"),
    ]
    return [*drawn, _models(models, folder / "models.png")] if len(models) > 1 else drawn


def _batch(point: Point) -> int:
    return point.cost.batch


def _context(point: Point) -> int:
    return point.cost.context


def _decodes(
    models: Sequence[Measured], names: tuple[str, str], sizes: tuple[Size, Size], path: Path
) -> Path:
    """Time of a step against the first size, a line for each of the second; a panel a model."""
    from matplotlib import pyplot

    width = 6 * len(models) + 2
    figure, grid = pyplot.subplots(1, len(models), figsize=(width, 5), squeeze=False, sharey=True)
    for axes, model in zip(grid.flat, models, strict=True):
        points = model.decodes()
        for number, line in enumerate(sorted({sizes[1](point) for point in points})):
            chosen = [point for point in points if sizes[1](point) == line]
            chosen.sort(key=sizes[0])
            _line(axes, [sizes[0](p) for p in chosen], chosen, f"{names[1]} {line}", f"C{number}")
        ticks = sorted({sizes[0](point) for point in points})
        _finish(axes, names[0], ticks, [str(tick) for tick in ticks])
        axes.set_title(model.name, fontsize=10)
    return _saved(figure, path)


def _models(models: Sequence[Measured], path: Path) -> Path:
    """Time of a step against the bytes of the weights: the smallest and the largest batch, of the
    shortest context."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    ordered = sorted(models, key=lambda model: model.work.weight_bytes)
    context = min(_context(point) for model in ordered for point in model.decodes())
    batches = [_batch(p) for m in ordered for p in m.decodes() if _context(p) == context]
    for number, batch in enumerate(sorted({min(batches), max(batches)})):
        found = [(m, p) for m in ordered for p in m.decodes()]
        chosen = [(m, p) for m, p in found if (_batch(p), _context(p)) == (batch, context)]
        places = [model.work.weight_bytes / 1e6 for model, _ in chosen]
        label = f"batch {batch}, context {context}"
        _line(axes, places, [point for _, point in chosen], label, f"C{number}")
        if batch != max(batches):
            continue  # the names once, above the highest line
        for at, (model, point) in enumerate(chosen):
            place, off = (places[at], point.cost.step * 1e3), (4, 18 if at % 2 else 8)
            axes.annotate(model.name, place, off, textcoords="offset points", fontsize=8)
    ticks = sorted({model.work.weight_bytes / 1e6 for model in ordered})
    _finish(axes, "weights, MB", ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.margins(x=0.15, y=0.1)
    return _saved(figure, path)


def _line(
    axes: Any, places: Sequence[float], points: Sequence[Point], label: str, colour: str
) -> None:
    """What was measured, and its limit."""
    steps = [point.cost.step * 1e3 for point in points]
    axes.plot(places, steps, marker="o", linewidth=2, color=colour, label=label)
    limits = [p.limit.seconds * 1e3 for p in points if p.limit is not None]
    if len(limits) == len(points):
        axes.plot(places, limits, linestyle="--", linewidth=1.2, color=colour)


def _finish(axes: Any, name: str, ticks: Sequence[float], words: Sequence[str]) -> None:
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, words)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.minorticks_off()
    axes.set_xlabel(name)
    axes.set_ylabel("ms a step (dashed: at the machine's limit)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _saved(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    return path
