"""OpenTelemetry for whatever answers HTTP: a span a call, sent by a thread of the library's."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from anychip.engine.messages import StartError
from anychip.http.call_record import CallRecord
from anychip.http.span_node import SpanNode
from anychip.settings.logs import CallLogSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from starlette.datastructures import Headers

log = logging.getLogger("anychip.server")

MOST_EVENTS = 1024
SEND_TIMEOUT_S = 5.0
SEND_EVERY_MS = 1000


class CallSpans:
    """Begins the spans of calls and sends them. Belongs to one event loop."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 (an extra)
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 (an extra)
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("anychip")
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER

    def begin(self, record: CallRecord, headers: Headers) -> Span:
        """The call's span. It is recorded where its caller's decision, or else chance, says so."""
        given = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        span: Span = self._tracer.start_span(
            record.method,
            context=self._propagator.extract(given),
            kind=self._kind,
            start_time=record.epoch_ns,
        )
        context = span.get_span_context()
        record.traced = span.is_recording()
        record.traceparent = (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        )
        return span

    async def close(self, hurry: asyncio.Event) -> None:
        """Send what is left, as long as one attempt may take, or until `hurry` is set."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(sent.set)

        # Not the loop's own threads: their end would be waited for, whatever hurry there is.
        threading.Thread(target=send, name="anychip-last-spans", daemon=True).start()
        waiting = [asyncio.create_task(event.wait()) for event in (sent, hurry)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def make(self, node: SpanNode, parent: Span, record: CallRecord) -> None:
        """The span of a node and those inside it, as they were."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 (an extra)

        span = self._tracer.start_span(
            node.name,
            context=set_span_in_context(parent),
            attributes=node.attributes,
            start_time=wall(record, node.begin),
        )
        for event in node.events:
            span.add_event(event.name, event.attributes, wall(record, event.at))
        for child in node.children:
            self.make(child, span, record)
        fail(span, node.error)
        span.end(wall(record, node.end))


def wall(record: CallRecord, moment: float) -> int:
    """Nanoseconds since 1970 of a monotonic moment, by the wall clock when the call came."""
    return record.epoch_ns + int((moment - record.started) * 1e9)


def fail(span: Span, error: str | None) -> None:
    """Mark it as failed, where there is an error."""
    if error is not None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 (an extra)

        span.set_status(Status(StatusCode.ERROR, error))
        span.set_attribute("error.type", error)


def open_provider(settings: CallLogSettings) -> TracerProvider | None:
    """What --otlp-traces-endpoint asks for. StartError where the library is not installed."""
    if settings.otlp_traces_endpoint is None:
        return None
    try:
        return _provider(settings, _endpoint(settings.otlp_traces_endpoint))
    except ImportError as error:
        raise StartError(
            f"--otlp-traces-endpoint: {error.name} is not installed; "
            "pip install 'anychip[trace]', or leave the flag out"
        ) from error


def _endpoint(url: str) -> str:
    """With the path that collectors take traces at, where none is given."""
    return url.rstrip("/") + "/v1/traces" if urlsplit(url).path in ("", "/") else url


def _provider(settings: CallLogSettings, url: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (an extra)
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.trace_sample)),
        resource=Resource.create({"service.name": settings.otlp_service_name}),
        span_limits=SpanLimits(max_span_attributes=64, max_events=MOST_EVENTS),
        shutdown_on_exit=False,
    )
    collector = BatchSpanProcessor(_counting(url), schedule_delay_millis=SEND_EVERY_MS)
    provider.add_span_processor(collector)
    return provider


def _counting(url: str) -> Any:
    from anychip.http.span_exporter import CountingExporter  # noqa: PLC0415 (an extra)

    return CountingExporter(url, SEND_TIMEOUT_S)
