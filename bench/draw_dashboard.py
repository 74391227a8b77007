"""Draw a dashboard of deploy/grafana from a Prometheus, without Grafana.

    .venv/bin/python bench/draw_dashboard.py deploy/grafana/engine.json --out engine.png \\
      [--prometheus URL] [--minutes N] [--panel TITLE ...] [--chip NAME]

Lines over time alone: panels of one number show the last value of a line that is drawn anyway. A
panel without data says so. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import count, lacking

INSTALL = f"pictures need matplotlib: {sys.executable} -m pip install matplotlib"
COLUMNS, POINTS, LEGEND = 3, 240, 8
RATE_INTERVAL = "20s"  # four scrapes of deploy/prometheus/prometheus.yml, as Grafana would take
UNITS = {"percentunit": (100, "%"), "bytes": (1 / (1 << 20), "MiB"), "Bps": (1 / 1e6, "MB/s")}


class Unanswered(Exception):
    """Prometheus is not there, or did not understand."""


@dataclass(frozen=True)
class Line:
    """One series: its legend, seconds before now, and values."""

    legend: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """A Prometheus, the time that is drawn, and the chip, ".*" for all."""

    url: str
    minutes: int
    chip: str

    def lines(self, panel: dict[str, Any]) -> list[Line]:
        """Every series of a panel. Raises Unanswered."""
        return [line for target in panel["targets"] for line in self._of(target)]

    def _of(self, target: dict[str, Any]) -> list[Line]:
        expr = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
        expr = expr.replace("$chip", self.chip)
        expr = re.sub(r"\$(model_name|instance)\b", ".*", expr)
        now, length = time.time(), self.minutes * 60
        asked = {"query": expr, "start": now - length, "end": now, "step": length / POINTS}
        found = self._ask("/api/v1/query_range?" + urllib.parse.urlencode(asked))
        lines = (_line(target["legendFormat"], series, now) for series in found["result"])
        return [line for line in lines if line.values]

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
        except (urllib.error.URLError, OSError, ValueError) as error:
            told = f"{self.url} does not answer as Prometheus does: {error}; see --prometheus"
            raise Unanswered(told) from error
        return data


def _line(legend: str, series: dict[str, Any], now: float) -> Line:
    labels = series["metric"]
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
    pairs = [(at - now, float(value)) for at, value in series["values"]]
    told = [(at, value) for at, value in pairs if math.isfinite(value)]
    return Line(text, tuple(at for at, _ in told), tuple(value for _, value in told))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dashboard", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, help="a PNG file")
    asked = {"default": "http://127.0.0.1:9090", "metavar": "URL"}
    parser.add_argument("--prometheus", **asked, help="where it answers [%(default)s]")
    parser.add_argument("--minutes", type=count, default=15, help="until now [%(default)s]")
    parser.add_argument("--panel", action="append", default=[], help="these alone, by title")
    parser.add_argument("--chip", default=".*", help="this one alone [all]")
    return parser.parse_args()


def chosen(path: Path, titles: list[str]) -> list[dict[str, Any]]:
    """Panels of lines, all or by title. Raises SystemExit for a title that none has, and a
    file that is no dashboard."""
    try:
        every = json.loads(path.read_text())["panels"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path} is no dashboard, as those in deploy/grafana are: {error}"
        ) from error
    lines = {panel["title"]: panel for panel in every if panel["type"] == "timeseries"}
    unknown = [title for title in titles if title not in lines]
    if unknown:
        raise SystemExit(f"{path} has no panel {unknown[0]!r}; it has: {', '.join(lines)}")
    return [lines[title] for title in titles or lines]


def draw(panels: list[dict[str, Any]], source: Source, out: Path) -> None:
    """Write the picture. Raises Unanswered."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (5.2 * columns, 3 * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, panel, source)
    figure.tight_layout()
    figure.savefig(out, dpi=80)


def _draw_panel(axes: Any, panel: dict[str, Any], source: Source) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, word = UNITS.get(unit, (1, unit.removeprefix("suffix: ")))
    lines = source.lines(panel)
    for line in lines:
        minutes = [second / 60 for second in line.seconds]
        label = line.legend if len(lines) <= LEGEND else None
        axes.plot(minutes, [factor * value for value in line.values], lw=1, label=label)
    axes.set_title(panel["title"], fontsize=9)
    axes.set_ylabel("" if word == "short" else word, fontsize=8)
    axes.set_xlabel("minutes", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_xlim(-source.minutes, 0)
    axes.set_ylim(bottom=0)
    if not lines:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
    elif len(lines) <= LEGEND:
        axes.legend(fontsize=6)


def main() -> int:
    """Draw."""
    asked = arguments()
    if lacking("matplotlib"):
        raise SystemExit(INSTALL)
    panels = chosen(asked.dashboard, asked.panel)
    try:
        draw(panels, Source(asked.prometheus.rstrip("/"), asked.minutes, asked.chip), asked.out)
    except Unanswered as error:
        raise SystemExit(str(error)) from error
    print(f"drew {len(panels)} panels into {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
