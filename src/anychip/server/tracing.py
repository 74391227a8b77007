"""OpenTelemetry: each sampled call becomes one tree of spans, sent by a thread of the library's.

Nothing here may disturb a call: spans are made when it is over, and what cannot be sent is counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.http.call_record import CallRecord
from anychip.request import Mark
from anychip.server.span_tree import (
    SpanNode,
    children_of,
    server_attributes,
    server_error_type,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from starlette.datastructures import Headers

log = logging.getLogger("anychip.server")

PATIENCE_S = 2.0
"""How long a call that is over waits for the engine's last word about it."""
MOST_EARLY = 4096
"""Timelines that are kept for calls that are not over; the oldest are forgotten beyond."""
MOST_EVENTS = 1024
SEND_TIMEOUT_S = 5.0
SEND_EVERY_MS = 1000


class Tracing:
    """Makes spans of calls. Belongs to one event loop."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 (an extra)
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 (an extra)
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("anychip")
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._spans: dict[str, tuple[CallRecord, Span]] = {}  # over, but not yet told
        self._waiting: dict[str, CallRecord] = {}  # by the engine's id
        self._early: OrderedDict[str, tuple[Mark, ...]] = OrderedDict()

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

    def end(self, record: CallRecord, span: Span, route: str | None) -> None:
        """The call is over; its spans are sent once the engine has told its part."""
        if not record.traced:
            return
        span.set_attributes(server_attributes(record, route))
        span.update_name(f"{record.method} {route}" if route else record.method)
        self._spans[record.traceparent or ""] = (record, span)
        self._take_early(record)
        if self._is_complete(record):
            self._tell(record)
        else:
            self._wait(record)

    def on_timeline(self, request_id: str, marks: tuple[Mark, ...]) -> None:
        """The engine has told what it did for a request."""
        record = self._waiting.pop(request_id, None)
        if record is None:
            self._early[request_id] = marks
            if len(self._early) > MOST_EARLY:
                self._early.popitem(last=False)
            return
        record.timelines[request_id] = marks
        if self._is_complete(record):
            self._tell(record)

    async def close(self, hurry: asyncio.Event) -> None:
        """Send what is left, as long as one attempt may take, or until `hurry` is set."""
        for record, _ in list(self._spans.values()):
            self._tell(record)
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

    def _take_early(self, record: CallRecord) -> None:
        for request in record.generation.requests if record.generation else ():
            marks = self._early.pop(request.id, None)
            if marks is not None:
                record.timelines[request.id] = marks

    def _is_complete(self, record: CallRecord) -> bool:
        generation = record.generation
        if generation is None or not generation.submitted:
            return True
        return all(request.id in record.timelines for request in generation.requests)

    def _wait(self, record: CallRecord) -> None:
        assert record.generation is not None
        for request in record.generation.requests:
            if request.id not in record.timelines:
                self._waiting[request.id] = record
        asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up, record)

    def _give_up(self, record: CallRecord) -> None:
        """Without the engine's word, unless the call goes on in the background."""
        if (record.traceparent or "") not in self._spans:
            return
        if record.generation is not None and record.generation.ended is None:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up, record)
        else:
            self._tell(record)

    def _tell(self, record: CallRecord) -> None:
        """Make the spans, once."""
        _, span = self._spans.pop(record.traceparent or "")
        for request in record.generation.requests if record.generation else ():
            self._waiting.pop(request.id, None)
        try:
            for node in children_of(record):
                self._make(node, span, record)
            _fail(span, server_error_type(record) if (record.status or 500) >= 500 else None)
        except Exception as error:
            log.error("no trace of call %s", record.request_id, exc_info=error)
        finally:
            span.end(_wall(record, record.ended or record.started))

    def _make(self, node: SpanNode, parent: Span, record: CallRecord) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 (an extra)

        span = self._tracer.start_span(
            node.name,
            context=set_span_in_context(parent),
            attributes=node.attributes,
            start_time=_wall(record, node.begin),
        )
        for event in node.events:
            span.add_event(event.name, event.attributes, _wall(record, event.at))
        for child in node.children:
            self._make(child, span, record)
        _fail(span, node.error)
        span.end(_wall(record, node.end))


def _wall(record: CallRecord, moment: float) -> int:
    """Nanoseconds since 1970 of a monotonic moment, by the wall clock when the call came."""
    return record.epoch_ns + int((moment - record.started) * 1e9)


def _fail(span: Span, error: str | None) -> None:
    if error is not None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 (an extra)

        span.set_status(Status(StatusCode.ERROR, error))
        span.set_attribute("error.type", error)


def open_tracing(config: ServeConfig) -> Tracing | None:
    """What --otlp-traces-endpoint asks for. StartError where the library is not installed."""
    if config.otlp_traces_endpoint is None:
        return None
    try:
        provider = _provider(config, _endpoint(config.otlp_traces_endpoint))
    except ImportError as error:
        raise StartError(
            f"--otlp-traces-endpoint: {error.name} is not installed; "
            "pip install 'anychip[trace]', or leave the flag out"
        ) from error
    return Tracing(provider)


def _endpoint(url: str) -> str:
    """With the path that collectors take traces at, where none is given."""
    return url.rstrip("/") + "/v1/traces" if urlsplit(url).path in ("", "/") else url


def _provider(config: ServeConfig, url: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (an extra)
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(config.trace_sample)),
        resource=Resource.create({"service.name": config.otlp_service_name}),
        span_limits=SpanLimits(max_span_attributes=64, max_events=MOST_EVENTS),
        shutdown_on_exit=False,
    )
    collector = BatchSpanProcessor(_counting(url), schedule_delay_millis=SEND_EVERY_MS)
    provider.add_span_processor(collector)
    return provider


def _counting(url: str) -> Any:
    from anychip.server.span_exporter import CountingExporter  # noqa: PLC0415 (an extra)

    return CountingExporter(url, SEND_TIMEOUT_S)
