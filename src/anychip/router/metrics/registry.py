"""The router's registry: asked when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from anychip.http.families import Families, Samples
from anychip.router.telemetry import STATES, WorkerView

from .catalogue import CATALOGUE, FIRST_BYTE, NOBODY, UNKNOWN
from .figures import RouterFigures, Who

ViewWorkers = Callable[[], Sequence[WorkerView]]


class RouterMetrics(Collector):
    """Everything that the router's /metrics shows. workers: those of the moment it is read."""

    def __init__(self) -> None:
        self.figures = RouterFigures()
        self.workers: ViewWorkers = lambda: ()
        self._families = Families(CATALOGUE)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        return generate_latest(self._registry)

    def describe(self) -> list[Family]:
        """Nothing ahead of time."""
        return []

    def collect(self) -> Iterator[Family]:
        """The metrics of this moment."""
        found, families = self.figures, self._families
        workers = self.workers()
        found.keep({NOBODY, *(one.name for one in workers)})
        yield from _of_workers(families, workers)
        counters: dict[str, Mapping[Any, float]] = {
            "requests": found.requests,
            "tries": found.tries,
            "retries": found.retries,
            "choices": found.choices,
            "prompt_tokens": found.prompt_tokens,
            "matched_prompt_tokens": found.matched_tokens,
            "breaker_openings": found.breakers,
            "rule_fallbacks": found.fallbacks,
        }
        for name, values in counters.items():
            yield families.many(f"anychip_router_{name}_total", values)
        yield families.histogram(FIRST_BYTE, found.first_byte)
        yield families.one("anychip_router_telemetry_errors_total", found.errors)


def _who(one: WorkerView) -> Who:
    return one.name, one.chip or UNKNOWN


def _of_workers(families: Families, workers: Sequence[WorkerView]) -> Iterator[Family]:
    ready = sum(one.state == "ready" for one in workers)
    yield families.one("anychip_router_workers_ready", ready)
    states: Samples = {
        (*_who(one), state): float(one.state == state) for one in workers for state in STATES
    }
    yield families.many("anychip_router_worker_state", states)
    yield families.many("anychip_router_worker_calls", {_who(w): w.calls for w in workers})
    tokens = {_who(w): w.tokens for w in workers}
    yield families.many("anychip_router_worker_prompt_tokens", tokens)
    windows = {_who(w): w.window for w in workers if w.window is not None}
    yield families.many("anychip_router_worker_window", windows)
