"""What a metric is, as data: the collectors, docs/metrics.md and the tests are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One family. unit: of its values, "1" where they only count. labels: beside common ones.

    absent: when it has no samples. buckets: upper bounds of a histogram, +Inf not among them.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help: str
    absent: str = ""
    buckets: tuple[float, ...] = ()


def gauge(name: str, unit: str, text: str, *labels: str, absent: str = "") -> Metric:
    """Something that goes up and down."""
    return Metric("anychip_" + name, "gauge", unit, labels, text, absent)


def counter(name: str, unit: str, text: str, *labels: str, absent: str = "") -> Metric:
    """Something that only grows, and begins again at 0 with its process."""
    return Metric(f"anychip_{name}_total", "counter", unit, labels, text, absent)


def histogram(name: str, unit: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    """Observations by size."""
    return Metric("anychip_" + name, "histogram", unit, labels, text, "", buckets)
