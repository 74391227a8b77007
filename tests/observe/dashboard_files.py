"""The shipped dashboards as the tests read them: panels, expressions, metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVERS = ("chips", "device", "engine")
"""Dashboards of servers."""
NAMES = (*SERVERS, "router")
VARIABLES = dict.fromkeys(SERVERS, ("chip", "model_name", "instance")) | {"router": ("router",)}
RATE_INTERVAL = "60s"
"""In place of Grafana's, which is four scrapes or longer."""
_FURTHER = r'(,[a-z]+(=~|!=|=)"[^"]+")*$'
_OF_SERVERS = r'^chip=~"\$chip",model_name=~"\$model_name",instance=~"\$instance"' + _FURTHER
CHOSEN = {name: re.compile(_OF_SERVERS) for name in SERVERS} | {
    "router": re.compile(r'^instance=~"\$router"' + _FURTHER)
}
_METRIC = re.compile(r"\banychip_\w+")
_SUFFIXES = ("_bucket", "_sum", "_count")


@dataclass(frozen=True)
class Expression:
    """One query of one panel."""

    dashboard: str
    panel: str
    ref: str
    text: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel} {self.ref}"

    def selectors(self) -> list[tuple[str, str]]:
        """Each metric and what stands between its braces, "" where there are none."""
        return re.findall(r"\b(anychip_\w+)(?:\{([^}]*)\})?", self.text)

    def promql(self, **chosen: str) -> str:
        """As Grafana would send it: variables that are not given stand for all."""
        text = self.text.replace("$__rate_interval", RATE_INTERVAL)
        for name in VARIABLES[self.dashboard]:
            text = text.replace(f"${name}", chosen.get(name, ".*"))
        assert "$" not in text, text
        return text


def read(name: str) -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / f"{name}.json").read_text())


def panels(name: str) -> list[dict[str, Any]]:
    """All but the headings."""
    return [panel for panel in read(name)["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[Expression]:
    for name in NAMES:
        for panel in panels(name):
            for target in panel["targets"]:
                yield Expression(name, panel["title"], target["refId"], target["expr"])


def metrics_of(text: str) -> set[str]:
    """Families that PromQL names."""
    found = set(_METRIC.findall(text))
    return {_family(name) for name in found}


def _family(name: str) -> str:
    """The histogram that a part belongs to; counters keep their `_total`."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
