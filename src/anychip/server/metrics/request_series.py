"""What requests saw: latencies, lengths and how they ended, observed as they are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from anychip.figures import Buckets
from anychip.http.families import Families, Samples
from anychip.server.metrics.catalogue import CATALOGUE, REQUESTS

FIRST_TOKEN = "anychip_time_to_first_token_seconds"
PER_TOKEN = "anychip_time_per_output_token_seconds"
BETWEEN_TOKENS = "anychip_inter_token_latency_seconds"
END_TO_END = "anychip_e2e_request_latency_seconds"
QUEUED = "anychip_queue_time_seconds"
PROMPT, GENERATED = "anychip_request_prompt_tokens", "anychip_request_generated_tokens"
"""Names of the histograms."""


class RequestFigures:
    """Counts for one server, in its event loop alone."""

    def __init__(self) -> None:
        self.histograms = {m.name: Buckets() for m in REQUESTS if m.kind == "histogram"}
        self.finished: Counter[str] = Counter()
        self.aborted = 0

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """A value of the histogram of this name, seen so often."""
        self.histograms[name].observe(value, CATALOGUE[name].buckets, times)


def request_series(families: Families, figures: RequestFigures) -> Iterator[Family]:
    """Families of the table REQUESTS."""
    for name, buckets in figures.histograms.items():
        yield families.histogram(name, {(): buckets})
    finished: Samples = {(reason,): float(count) for reason, count in figures.finished.items()}
    yield families.many("anychip_requests_finished_total", finished)
    yield families.one("anychip_requests_aborted_total", figures.aborted)
