"""One registry an app, in the HTTP process alone: asked when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from anychip.server.metrics.engine_series import engine_series
from anychip.server.metrics.families import Families
from anychip.server.metrics.request_series import RequestFigures, request_series
from anychip.server.metrics.sources import EngineView


class Metrics:
    """Everything that /metrics shows. requests: what the server observes as it answers."""

    def __init__(self, model: str, engine: EngineView) -> None:
        self.requests = RequestFigures()
        self._registry = CollectorRegistry()
        families = Families(model, engine.info.backend)
        self._registry.register(_Collector(families, engine, self.requests))

    def exposition(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        return generate_latest(self._registry)


class _Collector(Collector):
    """Turns what is known into families when they are asked for."""

    def __init__(self, families: Families, engine: EngineView, requests: RequestFigures) -> None:
        self._families, self._engine, self._requests = families, engine, requests

    def describe(self) -> list[Family]:
        """Nothing ahead of time: registering must not ask the engine."""
        return []

    def collect(self) -> Iterator[Family]:
        """The metrics of this moment."""
        yield from engine_series(self._families, self._engine)
        yield from request_series(self._families, self._requests)
