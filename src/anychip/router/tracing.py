"""The router's spans: one for each call, and within it one for each try, which the worker's joins.

A try's span is begun before the call is passed on, since the worker is told its id: so the spans
of router, worker and engine are one tree.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from anychip.http.call_record import CallRecord
from anychip.http.span_node import Attributes, call_attributes, error_type
from anychip.http.tracing import CallSpans, fail, open_provider, wall
from anychip.settings.logs import CallLogSettings

from .telemetry import RawHeaders

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from starlette.datastructures import Headers

_CONTEXT = (b"traceparent", b"tracestate")


class RouterTracing(CallSpans):
    """Makes spans of calls and of their tries. Belongs to one event loop."""

    def __init__(self, provider: TracerProvider) -> None:
        super().__init__(provider)
        self._open: dict[str, Span] = {}  # by what W3C Trace Context calls the call

    def begin(self, record: CallRecord, headers: Headers) -> Span:
        """See http.telling.Tracer."""
        span = super().begin(record, headers)
        self._open[record.traceparent or ""] = span
        return span

    def end(self, record: CallRecord, span: Span, route: str | None) -> None:
        """See http.telling.Tracer."""
        self._open.pop(record.traceparent or "", None)
        span.set_attributes(call_attributes(record, route))
        span.update_name(f"{record.method} {route}" if route else record.method)
        fail(span, error_type(record) if (record.status or 500) >= 500 else None)
        span.end(wall(record, record.ended or record.started))

    def is_open(self, record: CallRecord) -> bool:
        """Whether this call has a span, and is not over."""
        return record.traceparent in self._open

    def begin_try(self, record: CallRecord, attributes: Attributes) -> Span:
        """The span of a try that begins now. KeyError where the call has none."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 (an extra)

        span: Span = self._tracer.start_span(
            "try",
            context=set_span_in_context(self._open[record.traceparent or ""]),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=wall(record, time.monotonic()),
        )
        return span


def context_headers(span: Span, given: RawHeaders) -> RawHeaders:
    """The headers with this span in place of what they name as the parent."""
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    found = [(name, value) for name, value in given if name.lower() not in _CONTEXT]
    found.append((b"traceparent", parent.encode()))
    if state:
        found.append((b"tracestate", state.encode()))
    return found


def open_tracing(settings: CallLogSettings) -> RouterTracing | None:
    """What --otlp-traces-endpoint asks for. StartError where the library is not installed."""
    provider = open_provider(settings)
    return None if provider is None else RouterTracing(provider)
