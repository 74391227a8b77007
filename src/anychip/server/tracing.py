"""OpenTelemetry: each sampled call becomes one tree of spans, sent by a thread of the library's.

Nothing here may disturb a call: spans are made when it is over, and what cannot be sent is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from anychip.http.call_record import CallRecord
from anychip.http.span_node import error_type
from anychip.http.tracing import CallSpans, fail, open_provider, wall
from anychip.request import Mark
from anychip.server.span_tree import children_of, server_attributes
from anychip.settings.logs import CallLogSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger("anychip.server")

PATIENCE_S = 2.0
"""How long a call that is over waits for the engine's last word about it."""
MOST_EARLY = 4096
"""Timelines that are kept for calls that are not over; the oldest are forgotten beyond."""


class Tracing(CallSpans):
    """Makes spans of calls. Belongs to one event loop."""

    def __init__(self, provider: TracerProvider) -> None:
        super().__init__(provider)
        self._spans: dict[str, tuple[CallRecord, Span]] = {}  # over, but not yet told
        self._waiting: dict[str, CallRecord] = {}  # by the engine's id
        self._early: OrderedDict[str, tuple[Mark, ...]] = OrderedDict()

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
        await super().close(hurry)

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
                self.make(node, span, record)
            fail(span, error_type(record) if (record.status or 500) >= 500 else None)
        except Exception as error:
            log.error("no trace of call %s", record.request_id, exc_info=error)
        finally:
            span.end(wall(record, record.ended or record.started))


def open_tracing(settings: CallLogSettings) -> Tracing | None:
    """What --otlp-traces-endpoint asks for. StartError where the library is not installed."""
    provider = open_provider(settings)
    return None if provider is None else Tracing(provider)
