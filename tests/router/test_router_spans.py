"""The spans of a call and its tries, as a real collector receives them; what workers are told."""

from __future__ import annotations

import asyncio

import pytest
from starlette.datastructures import Headers

from anychip.http.call_record import CallRecord
from anychip.router.asking import Ask
from anychip.router.choosing import Choice
from anychip.router.tracing import RouterTracing, open_tracing
from anychip.router.watching import Telemetry
from anychip.settings.logs import CallLogSettings
from otlp_receiver import collecting

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASK = Ask("/generate", prompt_tokens=40)


@pytest.fixture(scope="module")
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture
def telemetry(collector):
    telemetry = Telemetry(open_tracing(CallLogSettings(otlp_traces_endpoint=collector.url)))
    yield telemetry
    asyncio.run(telemetry.tracing.close(asyncio.Event()))


def begin(telemetry, call_id, **headers):
    record = CallRecord(request_id=call_id, method="POST", path="/generate")
    return record, telemetry.tracing.begin(record, Headers(headers))


def end(telemetry, record, span, status=200):
    record.status, record.ended, record.outcome = status, record.started + 60, "complete"
    telemetry.tracing.end(record, span, "/generate")


def sent(headers, name):
    return [value.decode() for key, value in headers if key == name]


def test_a_retry_is_two_client_spans_and_the_worker_is_told_its_own(telemetry, collector):
    record, span = begin(telemetry, "retried", traceparent=PARENT, tracestate="vendor=1")
    watch = telemetry.begun(record, "/generate", ASK)
    given = [(b"TraceParent", PARENT.encode()), (b"tracestate", b"vendor=1"), (b"x", b"y")]
    told = []
    for attempt, choice in enumerate((Choice("big", "prefix", 32), Choice("fast", "load"))):
        watch.tried(attempt, choice)
        told.append(watch.headers_for(attempt, given))
        if attempt:
            watch.first_byte()
        watch.try_ended(choice.name, 200 if attempt else None, None if attempt else "connect")
    watch.ended(200)
    end(telemetry, record, span)
    tree = collector.tree("retried")
    assert tree.name == "POST /generate" and tree.names == ["try", "try"]
    assert tree.span.parent_span_id.hex() == PARENT.split("-")[2]
    first, second = tree.children
    assert {child.span.kind for child in tree.children} == {3}, "a client's"
    assert first.values["error.type"] == "connect" and first.span.status.code == 2
    assert first.values["anychip.matched_tokens"] == 32
    assert (first.values["anychip.worker"], first.values["anychip.why"]) == ("big", "prefix")
    assert "http.request.resend_count" not in first.values
    assert second.values["http.request.resend_count"] == 1 and second.events == ["first byte"]
    assert second.values["http.response.status_code"] == 200 and second.span.status.code == 0
    for headers, child in zip(told, tree.children, strict=True):
        (parent,) = sent(headers, b"traceparent")
        assert parent == f"{PARENT[:36]}{child.span.span_id.hex()}-01"
        assert sent(headers, b"tracestate") == ["vendor=1"] and sent(headers, b"x") == ["y"]
        assert sent(headers, b"TraceParent") == []


def test_a_callers_decision_not_to_trace_is_carried_to_the_worker(telemetry, collector):
    record, span = begin(telemetry, "ignored", traceparent=PARENT[:-1] + "0")
    watch = telemetry.begun(record, "/generate", ASK)
    watch.tried(0, Choice("a", "only"))
    (parent,) = sent(watch.headers_for(0, []), b"traceparent")
    assert parent.startswith(PARENT[:36]) and parent.endswith("-00")
    watch.try_ended("a", 200, None)
    end(telemetry, record, span)
    record, span = begin(telemetry, "after")
    end(telemetry, record, span)
    collector.tree("after")
    assert collector._root("ignored") is None


def test_a_client_that_leaves_is_no_fault_of_the_worker(telemetry, collector):
    record, span = begin(telemetry, "left")
    watch = telemetry.begun(record, "/generate", ASK)
    watch.tried(0, Choice("a", "only"))
    watch.try_ended("a", 200, "left")
    end(telemetry, record, span)
    (child,) = collector.tree("left").children
    assert child.span.status.code == 0 and "error.type" not in child.values


def test_a_call_that_is_not_traced_has_the_clients_own_context(telemetry):
    record = CallRecord(request_id="r", method="POST", path="/generate")
    watch = telemetry.begun(record, "/generate", ASK)
    watch.tried(0, Choice("a", "only"))
    given = [(b"traceparent", PARENT.encode())]
    assert watch.headers_for(0, given) == given
    assert Telemetry().begun(record, "/generate", ASK).headers_for(0, given) == given


def test_a_span_that_cannot_be_made_is_counted_and_told_once(telemetry, caplog, monkeypatch):
    def fail(self, record, attributes):
        raise RuntimeError("no span")

    monkeypatch.setattr(RouterTracing, "begin_try", fail)
    for _ in range(2):
        record, span = begin(telemetry, "broken")
        watch = telemetry.begun(record, "/generate", ASK)
        watch.tried(0, Choice("a", "only"))
        assert watch.headers_for(0, []) == []
        watch.try_ended("a", 200, None)
        end(telemetry, record, span)
    assert telemetry.metrics.figures.errors == 2
    assert [r.getMessage() for r in caplog.records].count("no trace of call broken") == 1
