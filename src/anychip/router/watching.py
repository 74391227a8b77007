"""Who listens to the call path: counts for /metrics, and spans where calls are traced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anychip.http.call_record import CallRecord
from anychip.http.span_node import Attributes
from anychip.http.tracing import fail, wall

from .asking import Ask
from .choosing import Choice
from .metrics.catalogue import UNKNOWN
from .metrics.figures import NO_WORKER, RouterFigures, Who
from .metrics.registry import RouterMetrics
from .telemetry import CallWatch, RawHeaders, TryError, WorkerView
from .tracing import RouterTracing, context_headers

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger("anychip.router")


class Telemetry:
    """The hub of a router (`telemetry.TelemetryHub`). tracing: None where nobody asked for it."""

    def __init__(self, tracing: RouterTracing | None = None) -> None:
        self.metrics = RouterMetrics()
        self.tracing = tracing
        self._chip_of: Callable[[str], str | None] = lambda name: None

    def begun(self, record: CallRecord, route: str, ask: Ask) -> CallWatch:
        """See TelemetryHub."""
        return _Watch(self.metrics.figures, self.tracing, record, (route, ask), self.who)

    def who(self, worker: str) -> Who:
        """The worker's labels."""
        return worker, self._chip_of(worker) or UNKNOWN

    def breaker_opened(self, worker: str) -> None:
        """See TelemetryHub."""
        self.metrics.figures.breakers[self.who(worker)] += 1

    def follow(
        self, workers: Callable[[], Sequence[WorkerView]], chip_of: Callable[[str], str | None]
    ) -> None:
        """See TelemetryHub."""
        self.metrics.workers, self._chip_of = workers, chip_of


class _Watch:
    """One call: its tries one after another, each with a span where the call has one."""

    def __init__(
        self,
        figures: RouterFigures,
        tracing: RouterTracing | None,
        record: CallRecord,
        asked: tuple[str, Ask],
        who_is: Callable[[str], Who],
    ) -> None:
        self._figures, self._record = figures, record
        self._route, self._ask = asked
        self._tracing = tracing if tracing is not None and tracing.is_open(record) else None
        self._span: Span | None = None
        self._who_is, self._who = who_is, NO_WORKER
        self._began = 0.0
        self._failed: TryError | None = None

    def tried(self, attempt: int, choice: Choice) -> None:
        """See CallWatch."""
        self._began, self._who = time.monotonic(), self._who_is(choice.name)
        retry = (self._failed or "refused") if attempt else None
        self._figures.chosen(self._ask, choice, self._who[1], retry)
        with self._watched():
            if self._tracing is not None:
                attributes: Attributes = {
                    "anychip.worker": choice.name,
                    "anychip.why": choice.why,
                    "anychip.matched_tokens": choice.matched_tokens,
                    "anychip.prompt_tokens.estimate": self._ask.prompt_tokens,
                }
                if attempt:
                    attributes["http.request.resend_count"] = attempt
                self._span = self._tracing.begin_try(self._record, attributes)

    def headers_for(self, attempt: int, given: RawHeaders) -> RawHeaders:
        """See CallWatch."""
        with self._watched():
            if self._span is not None:
                return context_headers(self._span, given)
        return given

    def first_byte(self) -> None:
        """See CallWatch."""
        now = time.monotonic()
        self._figures.answered_first(self._who, now - self._began)
        with self._watched():
            if self._span is not None:
                self._span.add_event("first byte", timestamp=wall(self._record, now))

    def try_ended(self, worker: str, status: int | None, error: TryError | None) -> None:
        """See CallWatch."""
        name, chip = self._who
        self._figures.tries[name, chip, error or "answered"] += 1
        self._failed = error
        with self._watched():
            span, self._span = self._span, None
            if span is not None:
                if status is not None:
                    span.set_attribute("http.response.status_code", status)
                fail(span, None if error == "left" else error)  # which is no fault of the worker's
                span.end(wall(self._record, time.monotonic()))

    def fell_back(self, rule: str) -> None:
        """See CallWatch."""
        self._figures.fallbacks[(rule,)] += 1

    def ended(self, status: int | None) -> None:
        """See CallWatch."""
        self._figures.ended(self._route, self._who, status)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """What goes wrong with a span is counted and told, and disturbs no call."""
        try:
            yield
        except Exception as error:
            if not self._figures.errors:
                log.error("no trace of call %s", self._record.request_id, exc_info=error)
            self._figures.errors += 1
