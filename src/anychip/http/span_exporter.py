"""Sends spans, and says once that it cannot. Imported where --otlp-traces-endpoint is set."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

log = logging.getLogger("anychip.server")

SHOWN = 300
"""Characters of the library's own words that are passed on."""


class FirstWord(logging.Handler):
    """Keeps what the library says first of an attempt, without what it will do next: it returns no
    reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """One line of it."""
        text, _, _ = record.getMessage().partition(" encountered while exporting")
        self.text = self.text or " ".join(text.split())[:SHOWN]


class CountingExporter:
    """OTLP over HTTP: the library's SpanExporter, which its thread that collects spans calls.

    lost: spans that could not be sent.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self.lost = 0
        self._url = url
        self._failing = False
        # The library tells of every attempt; once is enough, and this class does it.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._said, self._library = FirstWord(), logging.getLogger(OTLPSpanExporter.__module__)
        self._library.setLevel(logging.WARNING)
        self._library.propagate = False
        self._library.addHandler(self._said)
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=timeout_s)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them; what cannot be sent is counted, and told the first time."""
        self._said.text = ""
        why = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 (told below: traces never disturb the server)
            result, why = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        if result is SpanExportResult.SUCCESS:
            if self._failing:
                log.info("traces reach %s again; %d spans were lost", self._url, self.lost)
            self._failing = False
            return SpanExportResult.SUCCESS
        self.lost += len(spans)
        if not self._failing:
            self._failing = True
            log.warning(
                "traces do not reach %s (%s); %d spans are lost so far, answers are not affected",
                self._url,
                why or self._said.text or "the collector did not take them",
                self.lost,
            )
        return SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return True

    def shutdown(self) -> None:
        """End the connection."""
        self._exporter.shutdown()
        self._library.removeHandler(self._said)
