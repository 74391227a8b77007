"""Builds Prometheus' families out of a catalogue, so that no series has a name of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family

from anychip.figures import Buckets
from anychip.http.metric import Metric

Samples = dict[tuple[str, ...], float]
"""Values by the labels beside the common ones."""


def labelled(counts: Mapping[str, float]) -> Samples:
    """Values of a family with one label beside the common ones, by it."""
    return {(label,): value for label, value in counts.items()}


class Families:
    """Families whose every sample has the common labels. catalogue: all that there may be."""

    def __init__(
        self, catalogue: Mapping[str, Metric], common: Mapping[str, str] | None = None
    ) -> None:
        self._catalogue = catalogue
        self._names = tuple(common or ())
        self._common = tuple((common or {}).values())

    def one(self, name: str, value: float | None) -> Family:
        """A series without further labels; None: the family without a sample."""
        return self.many(name, {} if value is None else {(): value})

    def many(self, name: str, values: Mapping[Any, float]) -> Family:
        """A series for each tuple of labels."""
        metric = self._catalogue[name]
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=self._labels(metric))
        for labels, value in values.items():
            family.add_metric((*self._common, *labels), value)
        return family

    def histogram(self, name: str, found: Mapping[Any, Buckets]) -> Family:
        """A histogram for each tuple of labels; one that nothing was observed of is empty."""
        metric = self._catalogue[name]
        family = HistogramMetricFamily(metric.name, metric.help, labels=self._labels(metric))
        for labels, buckets in found.items():
            counts, cumulative, below = buckets.counts, [], 0
            for place, bound in enumerate((*metric.buckets, math.inf)):
                below += counts[place] if counts else 0
                cumulative.append((_text(bound), float(below)))
            family.add_metric((*self._common, *labels), cumulative, buckets.total)
        return family

    def _labels(self, metric: Metric) -> tuple[str, ...]:
        return (*self._names, *metric.labels)


def _text(bound: float) -> str:
    return "+Inf" if bound == math.inf else str(float(bound))
