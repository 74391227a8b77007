"""Spans as a real collector receives them, over the whole way from the engine."""

from __future__ import annotations

import asyncio
import builtins
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from anychip.config import ConfigError
from anychip.engine.client import DEFAULT_BUILDER
from anychip.engine.messages import StartError
from anychip.http.call_record import CallRecord
from anychip.http.tracing import wall
from anychip.model.tiny import write_tiny
from anychip.server.tracing import Tracing, open_tracing
from otlp_receiver import collecting
from scripted_engine import FAIL
from served import config_for, running, wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
IGNORED = PARENT[:-1] + "0"
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@pytest.fixture(scope="module")
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(folder, collector):
    """A server that traces."""
    config = config_for(
        folder,
        otlp_traces_endpoint=collector.url,
        otlp_service_name="lab",
        chip_option={"step_s": "0.005"},
    )
    with running(config) as server:
        yield server


@pytest.fixture(scope="module")
def ask(traced):
    with traced.http() as http:

        def send(call_id, path="/v1/chat/completions", body=CHAT, **headers):
            return http.post(path, json=body, headers={"x-request-id": call_id, **headers})

        yield send


def test_one_tree_a_call_under_its_callers_span(ask, collector):
    answer = ask("plain", traceparent=PARENT, tracestate="vendor=1")
    tree = collector.tree("plain")
    assert tree.span.trace_id.hex() == PARENT.split("-")[1]
    assert tree.span.parent_span_id.hex() == PARENT.split("-")[2]
    told = answer.headers["traceresponse"].split("-")
    assert told == ["00", tree.span.trace_id.hex(), tree.span.span_id.hex(), "01"]
    assert tree.name == "POST /v1/chat/completions"
    assert tree.names == ["text", "sequence"]
    sequence = tree.child("sequence")
    assert sequence.names == ["queue", "prefill", "decode"]
    assert sequence.child("prefill").events == ["chunk"]
    assert sequence.child("decode").events == ["first token", *["step"] * 4]
    tree.check_nested()
    usage = answer.json()["usage"]
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.id": answer.json()["id"],
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "http.response.status_code": 200,
        "http.route": "/v1/chat/completions",
        "anychip.call.outcome": "complete",
    }
    assert {name: tree.values.get(name) for name in expected} == expected
    assert "lab" in collector.services


def test_steps_tell_who_else_was_in_them(ask, collector):
    ask("steps", "/v1/completions", {"prompt": "seen by nobody", "max_tokens": 1})
    chunk = collector.tree("steps").child("sequence").child("prefill").span.events[0]
    found = {pair.key: pair.value.int_value for pair in chunk.attributes}
    assert found["anychip.tokens"] == len("seen by nobody") and found["anychip.step"] > 0
    assert (found["anychip.step.rows"], found["anychip.step.decoding_rows"]) == (1, 0)


def test_every_choice_is_a_sequence(ask, collector):
    ask("two", body={**CHAT, "n": 2})
    tree = collector.tree("two")
    assert tree.names == ["text", "sequence", "sequence"]
    assert {child.values["anychip.choice"] for child in tree.children[1:]} == {0, 1}
    tree.check_nested()


def test_a_callers_decision_not_to_trace_is_kept(ask, collector):
    answer = ask("ignored", traceparent=IGNORED)
    assert answer.headers["traceresponse"].endswith("-00")
    ask("after")
    collector.tree("after")
    assert collector._root("ignored") is None


def test_a_stream_and_a_stop_string_close_their_spans(ask, collector):
    answer = ask("stream", body={**CHAT, "stream": True, "max_tokens": 40, "stop": ["lm"]})
    assert b"[DONE]" in answer.content
    tree = collector.tree("stream")
    assert tree.values["gen_ai.request.stream"]
    assert tree.child("sequence").names == ["queue", "prefill", "decode"]
    assert tree.child("sequence").values["anychip.finish_reason"] == "stop"


def test_a_client_that_leaves_is_told_as_such(traced, collector):
    with traced.http() as http:
        body = {**CHAT, "stream": True, "max_tokens": 200}
        headers = {"x-request-id": "gone"}
        path = "/v1/chat/completions"
        with http.stream("POST", path, json=body, headers=headers) as answer:
            next(answer.iter_lines())
    tree = collector.tree("gone")
    assert tree.values["anychip.call.outcome"] == "disconnected"
    assert tree.child("sequence").names == ["queue", "prefill", "decode"]


@pytest.mark.parametrize(
    ("name", "body", "status", "error"),
    [
        ("wrong", {**CHAT, "max_tokens": 0}, 400, "invalid_request_error"),
        ("model", {**CHAT, "model": "none"}, 404, "model_not_found"),
        ("failed", {"prompt": f"a{chr(FAIL)}"}, 500, "engine_error"),
    ],
)
def test_failures_close_their_spans(ask, collector, name, body, status, error):
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    assert ask(name, path, body).status_code == status
    tree = collector.tree(name)
    assert tree.values["error.type"] == error
    assert tree.values["http.response.status_code"] == status
    assert (tree.span.status.code == 2) == (status >= 500)


def test_a_retraction_is_seen(folder, collector):
    config = config_for(folder, otlp_traces_endpoint=collector.url, force_retract_every=4)
    with running(config) as server, server.http() as http:
        body, headers = {**CHAT, "max_tokens": 8}, {"x-request-id": "retracted"}
        http.post("/v1/chat/completions", json=body, headers=headers)
    tree = collector.tree("retracted")
    sequence = tree.child("sequence")
    assert sequence.names[:5] == ["queue", "prefill", "decode", "queue", "prefill"]
    assert sequence.values["anychip.retractions"] >= 1
    assert "retracted" in sequence.events and "retracted" in sequence.children[2].events
    assert sequence.children[4].values["anychip.after_retraction"]
    tree.check_nested()


def test_spans_lie_within_each_other_where_steps_overlap(collector, tmp_path):
    model = str(write_tiny(tmp_path))
    config = config_for(
        model,
        otlp_traces_endpoint=collector.url,
        max_total_tokens=1024,
        chunked_prefill_size=64,
        force_retract_every=9,
    )
    with running(config, builder=DEFAULT_BUILDER) as server, server.http() as http:

        def send(number: int) -> None:
            body = {"prompt": f"word {number} " * 20, "max_tokens": 20, "n": 2, "ignore_eos": True}
            headers = {"x-request-id": f"nested-{number}"}
            assert http.post("/v1/completions", json=body, headers=headers).status_code == 200

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, range(8)))
        for number in range(8):
            tree = collector.tree(f"nested-{number}")
            assert tree.names == ["text", "sequence", "sequence"]
            tree.check_nested()


def test_a_collector_that_refuses_costs_one_line_and_no_answer(folder, caplog):
    with collecting() as broken:
        broken.status = 400
        config = config_for(folder, otlp_traces_endpoint=broken.url + "/v1/traces")
        with running(config) as server, server.http() as http:
            for sent in (1, 2):
                assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
                wait_until(lambda sent=sent: broken.attempts >= sent)
    told = [r for r in caplog.records if "traces do not reach" in r.getMessage()]
    assert len(told) == 1
    assert "code: 400" in told[0].getMessage()


def test_the_librarys_reason_is_told_without_what_it_does_next():
    from anychip.http.span_exporter import SHOWN, FirstWord

    said = FirstWord()
    for text in ("Transient error (no\n way) encountered while exporting span batch, retry", "2"):
        said.handle(logging.LogRecord("a", logging.ERROR, "", 0, text, None, None))
    assert said.text == "Transient error (no way)"
    said.text = ""
    said.handle(logging.LogRecord("a", logging.ERROR, "", 0, "x" * 2 * SHOWN, None, None))
    assert len(said.text) == SHOWN


def test_monotonic_moments_become_wall_clock_time():
    record = CallRecord(request_id="a", method="GET", path="/", started=100.0, epoch_ns=10**18)
    assert wall(record, 101.5) == 10**18 + 1_500_000_000


def test_whoever_ends_the_server_in_a_hurry_waits_for_no_span():
    let_go = threading.Event()

    class Stuck:
        def get_tracer(self, name):
            return None

        def shutdown(self):
            let_go.wait(60)

    async def close() -> None:
        hurry = asyncio.Event()
        hurry.set()
        await Tracing(Stuck()).close(hurry)

    asyncio.run(close())
    assert not let_go.is_set()
    let_go.set()


def test_without_the_library_the_way_out_is_told(folder, monkeypatch):
    importing = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("opentelemetry"):
            raise ImportError(name=name)
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(StartError, match=r"pip install 'anychip\[trace\]'"):
        open_tracing(config_for(folder, otlp_traces_endpoint="http://127.0.0.1:4318"))


@pytest.mark.parametrize(
    "changes",
    [{"otlp_traces_endpoint": "127.0.0.1:4317"}, {"trace_sample": 0.5}, {"trace_sample": 2.0}],
)
def test_settings_that_cannot_be_obeyed(folder, changes):
    with pytest.raises(ConfigError, match=r"--(otlp-traces-endpoint|trace-sample)"):
        config_for(folder, **changes)
