"""Prometheus metrics: one registry an app, in this process alone; the engine sends snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anychip.plan import SchedulerStats

_PREFIX = "anychip_"
_LABEL = "model_name"

# Seconds; powers of about two from one step of a small model to a very long answer.
_FIRST_TOKEN = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_PER_TOKEN = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_LATENCY = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)

_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("num_running_reqs", "running", "Requests that hold a slot."),
    ("num_queue_reqs", "queued", "Requests that wait."),
    ("host_slots_total", "host_slots_total", "Pages that host memory has room for."),
    ("host_slots_free", "host_slots_free", "Of those, the ones that hold nothing."),
    ("num_queue_tokens", "queued_tokens", "Tokens of the requests that wait."),
    (
        "new_token_ratio",
        "expected_output",
        "Share of its rest that each request is given room for.",
    ),
)
_COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of admitted requests."),
    ("cached_tokens", "cached_tokens", "Prompt tokens whose KV came from the prefix cache."),
    ("generation_tokens", "generated_tokens", "Tokens generated."),
    ("num_retracted_requests", "retractions", "Retractions for lack of cache memory."),
    ("num_preempted_requests", "preemptions", "Retractions for the sake of a higher priority."),
    ("num_timed_out_requests", "timed_out", "Requests that waited or ran for too long."),
    ("evicted_pages", "evicted_pages", "Pages evicted from the prefix cache."),
    ("host_saved_pages", "host_saved_pages", "Evicted pages copied to host memory."),
    ("host_loaded_pages", "host_loaded_pages", "Pages copied back from host memory."),
    ("engine_steps", "steps", "Steps of the engine."),
    ("check_violations", "check_violations", "Broken scheduler invariants; 0 or a bug."),
)
_PAGES: tuple[tuple[str, str], ...] = (
    ("free", "pages_free"),
    ("cached", "pages_cached"),
    ("held", "pages_held"),
)
_TIERS: tuple[tuple[str, str], ...] = (
    ("device", "cached_tokens_device"),
    ("host", "cached_tokens_host"),
)

Snapshot = Callable[[], tuple[SchedulerStats, int, bool]]
"""→ the engine's last statistics, how often its process died, and whether it is ready."""


class Metrics:
    """Everything that /metrics shows."""

    def __init__(self, model: str, snapshot: Snapshot) -> None:
        self.model = model
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(model, snapshot))
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "Arrival to the first token.", _FIRST_TOKEN
        )
        self.per_token = self._histogram(
            "time_per_output_token_seconds",
            "A request's time per token after its first.",
            _PER_TOKEN,
        )
        self.latency = self._histogram(
            "e2e_request_latency_seconds", "Arrival to the last token.", _LATENCY
        )
        self.requests = Counter(
            _PREFIX + "num_requests",
            "Finished sequences by reason.",
            (_LABEL, "finish_reason"),
            registry=self._registry,
        )
        self.aborted = Counter(
            _PREFIX + "num_aborted_requests",
            "Sequences that ended before their time: client gone, aborted, or failed.",
            (_LABEL,),
            registry=self._registry,
        ).labels(model)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            _PREFIX + name, text, (_LABEL,), buckets=buckets, registry=self._registry
        ).labels(self.model)

    def exposition(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Turns the engine's last snapshot into metrics when they are asked for."""

    def __init__(self, model: str, snapshot: Snapshot) -> None:
        self._model = model
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: registering must not ask the engine."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        stats, deaths, ready = self._snapshot()
        for name, field, text in _GAUGES:
            yield self._gauge(name, text, getattr(stats, field))
        for name, field, text in _COUNTERS:
            yield self._counter(name, text, getattr(stats, field))
        hits = stats.cached_tokens / stats.prompt_tokens if stats.prompt_tokens else 0.0
        yield self._gauge("cache_hit_rate", "Cached part of all prompt tokens so far.", hits)
        yield self._gauge("engine_ready", "1 where the engine takes requests.", float(ready))
        yield self._counter("engine_deaths", "How often the engine process died.", deaths)
        pages = GaugeMetricFamily(
            _PREFIX + "kv_pages", "Pages of the KV cache.", labels=(_LABEL, "state")
        )
        for state, field in _PAGES:
            pages.add_metric((self._model, state), getattr(stats, field))
        yield pages
        tiers = CounterMetricFamily(
            _PREFIX + "cached_tokens_by_tier",
            "Prompt tokens whose KV was found, by where it lay.",
            labels=(_LABEL, "tier"),
        )
        for tier, field in _TIERS:
            tiers.add_metric((self._model, tier), getattr(stats, field))
        yield tiers

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(_PREFIX + name, text, labels=(_LABEL,))
        family.add_metric((self._model,), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(_PREFIX + name, text, labels=(_LABEL,))
        family.add_metric((self._model,), value)
        return family
