"""From a list of panels to the JSON that Grafana imports (schema 39: Grafana 10.4 and later)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 39
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Variable:
    """What is chosen at the top of a dashboard: values of a label. name: as PromQL has it."""

    name: str
    label: str
    title: str


@dataclass(frozen=True)
class Source:
    """Whose metrics a dashboard shows. first: one that each has from its first moment, so the
    variables are read from it."""

    first: str
    variables: tuple[Variable, ...]

    @property
    def chosen(self) -> str:
        """The matchers of all variables."""
        return ",".join(f'{one.label}=~"${one.name}"' for one in self.variables)


SERVERS = Source(
    "anychip_engine_ready",
    (
        Variable("chip", "chip", "Chip"),
        Variable("model_name", "model_name", "Model"),
        Variable("instance", "instance", "Server"),
    ),
)
# Another name than a server's: links between dashboards carry what was chosen along.
ROUTERS = Source("anychip_router_workers_ready", (Variable("router", "instance", "Router"),))


@dataclass(frozen=True)
class Query:
    """expr: PromQL, in which `@` stands for the variables' matchers. legend: of one series."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """kind: timeseries, stat or bargauge. limit: the value from which it is drawn in red."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False
    limit: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """uid: what other dashboards link to."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    source: Source = SERVERS


def rate(metric: str, labels: str = "") -> str:
    """Per second, of a counter or of a part of a histogram."""
    return f"rate({series(metric, labels)}[$__rate_interval])"


def series(metric: str, labels: str = "") -> str:
    """The metric of what the variables choose."""
    return f"{metric}{{@{',' + labels if labels else ''}}}"


def quantile(share: float, histogram: str, by: str, labels: str = "") -> str:
    """A quantile of a histogram, for each value of the labels `by`."""
    buckets = rate(histogram + "_bucket", labels)
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def mean(histogram: str, by: str, labels: str = "") -> str:
    """The mean of a histogram, for each value of the labels `by`."""
    total, count = rate(histogram + "_sum", labels), rate(histogram + "_count", labels)
    return f"sum by ({by}) ({total}) / sum by ({by}) ({count})"


def as_json(dashboard: Dashboard, others: Sequence[Dashboard]) -> dict[str, Any]:
    """The dashboard with its variables, and links to the others."""
    return {
        "annotations": {"list": []},
        "description": dashboard.description,
        "editable": True,
        "graphTooltip": 1,
        "links": [_link(other) for other in others if other is not dashboard],
        "panels": list(_panels(dashboard)),
        "refresh": "10s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["anychip"],
        "templating": {"list": _variables(dashboard.source)},
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "title": dashboard.title,
        "uid": dashboard.uid,
        "version": 1,
    }


def _link(other: Dashboard) -> dict[str, Any]:
    return {
        "title": other.title,
        "tooltip": other.description,
        "type": "link",
        "url": f"/d/{other.uid}",
        "icon": "external link",
        "tags": [],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _variables(source: Source) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "hide": 0,
        }
    ]
    before: list[str] = []
    for one in source.variables:
        metric = source.first + (f"{{{','.join(before)}}}" if before else "")
        found.append(_variable(one, metric))
        before.append(f'{one.label}=~"${one.name}"')
    return found


def _variable(variable: Variable, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": SOURCE,
        "query": {"qryType": 1, "query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in dashboard.rows:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        number, top = number + 1, top + 1
        left = line = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, line = 0, top + line, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield _panel(panel, number, place, dashboard.source.chosen)
            number, left, line = number + 1, left + panel.width, max(line, panel.height)
        top += line


def _panel(panel: Panel, number: int, place: dict[str, int], chosen: str) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [_target(query, at, chosen) for at, query in enumerate(panel.queries)],
    }


def _target(query: Query, at: int, chosen: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr.replace("@", chosen),
        "legendFormat": query.legend,
        "range": True,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    shown: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
    }
    if panel.unit == "percentunit":
        shown["max"] = 1
    if panel.kind == "timeseries":
        shown["custom"] = _drawing(panel)
    return shown


def _drawing(panel: Panel) -> dict[str, Any]:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if panel.stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if panel.limit is None else "line"},
    }


_REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": _REDUCED,
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    },
    "bargauge": {
        "reduceOptions": _REDUCED,
        "displayMode": "gradient",
        "orientation": "horizontal",
        "showUnfilled": True,
    },
}
