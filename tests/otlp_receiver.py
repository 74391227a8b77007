"""A collector of OpenTelemetry traces, for tests: OTLP over HTTP on the loopback."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from served import wait_until


class Collector:
    """What was received. status: what senders are answered from now on."""

    def __init__(self) -> None:
        self.status, self.attempts, self.spans, self.services = 200, 0, [], set()
        self.url = ""

    def take(self, body: bytes) -> None:
        self.attempts += 1
        if self.status != 200:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def tree(self, call_id: str) -> Tree:
        """The spans of a call, waiting for them."""
        wait_until(lambda: self._root(call_id) is not None)
        return Tree(self.spans, self._root(call_id))

    def _root(self, call_id: str):
        return next((s for s in self.spans if values(s).get("anychip.call.id") == call_id), None)


def values(item) -> dict:
    """Attributes of a span or event as plain values."""
    found = {}
    for pair in item.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind) if kind else None
        if kind == "array_value":
            value = [one.string_value for one in value.values]
        found[pair.key] = value
    return found


class Tree:
    """A span and those inside it."""

    def __init__(self, spans, root) -> None:
        self.span, self.name, self.values = root, root.name, values(root)
        mine = [s for s in spans if s.parent_span_id == root.span_id]
        mine = [s for s in mine if s.trace_id == root.trace_id]
        self.children = [
            Tree(spans, s) for s in sorted(mine, key=lambda s: (s.start_time_unix_nano, s.name))
        ]

    @property
    def names(self) -> list[str]:
        return [child.name for child in self.children]

    @property
    def events(self) -> list[str]:
        return [event.name for event in self.span.events]

    def child(self, name: str) -> Tree:
        return next(child for child in self.children if child.name == name)

    def check_nested(self) -> None:
        """Every span ends after it begins, and within the one that it is part of."""
        begin, end = self.span.start_time_unix_nano, self.span.end_time_unix_nano
        assert begin <= end, self.name
        for child in self.children:
            inner = child.span
            assert begin <= inner.start_time_unix_nano, (self.name, child.name)
            assert inner.end_time_unix_nano <= end, (self.name, child.name)
            child.check_nested()
        for event in self.span.events:
            assert begin <= event.time_unix_nano <= end, (self.name, event.name)


@contextmanager
def collecting():
    collector = Collector()

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
