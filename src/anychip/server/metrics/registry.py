"""One registry an app, in the HTTP process alone: asked when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from anychip.http.families import Families
from anychip.http.http_calls import HttpFigures
from anychip.server.metrics.aliases import alias_families
from anychip.server.metrics.catalogue import CATALOGUE, COMMON_LABELS
from anychip.server.metrics.device_series import device_series
from anychip.server.metrics.engine_series import engine_series
from anychip.server.metrics.request_series import RequestFigures, request_series
from anychip.server.metrics.server_series import server_series
from anychip.server.metrics.sources import EngineView


class Metrics(Collector):
    """Everything that /metrics shows. requests, http: what the server counts as it answers.

    aliases: engines whose names are exported too.
    """

    def __init__(self, model: str, engine: EngineView, aliases: Sequence[str] = ()) -> None:
        self.requests = RequestFigures()
        self.http = HttpFigures()
        self._engine, self._aliases = engine, aliases
        common = dict(zip(COMMON_LABELS, (model, engine.info.backend), strict=True))
        self._families = Families(CATALOGUE, common)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        return generate_latest(self._registry)

    def describe(self) -> list[Family]:
        """Nothing ahead of time: registering must not ask the engine."""
        return []

    def collect(self) -> Iterator[Family]:
        """The metrics of this moment."""
        found = {_name_of(family): family for family in self._own()}
        yield from found.values()
        yield from alias_families(self._aliases, found, self._engine.info.page_size)

    def _own(self) -> Iterator[Family]:
        families, engine = self._families, self._engine
        yield from device_series(families, engine)
        yield from engine_series(families, engine)
        yield from request_series(families, self.requests)
        yield from server_series(families, engine, self.http)


def _name_of(family: Family) -> str:
    """The catalogue's: the client's families of counters leave out the end."""
    return family.name + "_total" if family.type == "counter" else str(family.name)
