"""Spans as a receiver of other people's reads them: oteltap, OTLP over HTTP, written in Rust."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from anychip.engine.client import DEFAULT_BUILDER
from anychip.model.tiny import write_tiny
from served import config_for, running, wait_until

pytestmark = pytest.mark.skipif(
    find_spec("oteltap") is None,
    reason="no oteltap here (pip install -r requirements/otlp.txt; x86-64 Linux)",
)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OK, ERROR = 0, 2
"""Status codes of OTLP: unset, which is what a good span has, and error."""


class Received:
    """Spans that the program has printed, by name; the names of a call differ."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line)

    def spans(self, call_id: str) -> dict[str, dict]:
        """Those of one call, once its own span is there: the last that is sent."""
        wait_until(lambda: self._root(call_id) is not None)
        trace = (self._root(call_id) or {})["traceId"]
        return {span["name"]: span for span in self._all() if span["traceId"] == trace}

    def _all(self) -> list[dict]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def _root(self, call_id: str) -> dict | None:
        mine = [s for s in self._all() if values(s).get("anychip.call.id") == call_id]
        return mine[0] if mine else None


def values(item: dict) -> dict:
    """Attributes; an integer is a text in OTLP's JSON."""
    found = {}
    for pair in item["attributes"]:
        ((kind, value),) = pair["value"].items()
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def receiving():
    """The running program and where it listens; ended by its pid."""
    port = free_port()
    words = [sys.executable, "-m", "oteltap", "--port", str(port)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        received = Received(process)
        wait_until(lambda: any("Listening" in line for line in received.lines))
        yield received, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    model = write_tiny(tmp_path_factory.mktemp("model"))
    with receiving() as (received, url):
        settings = {"backend": "fake", "otlp_traces_endpoint": url, "max_total_tokens": 1024}
        config = config_for(model, **settings)
        with running(config, builder=DEFAULT_BUILDER) as server, server.http() as http:
            yield received, http


def test_another_program_reads_the_whole_tree(traced) -> None:
    received, http = traced
    body = {"prompt": "Once", "max_tokens": 5, "ignore_eos": True}
    answer = http.post(
        "/v1/completions", json=body, headers={"x-request-id": "whole", "traceparent": PARENT}
    )
    spans = received.spans("whole")
    call = spans["POST /v1/completions"]
    assert {name: spans[name]["parentSpanId"] for name in spans} == {
        call["name"]: PARENT.split("-")[2],
        **dict.fromkeys(("text", "sequence"), call["spanId"]),
        **dict.fromkeys(("queue", "prefill", "decode"), spans["sequence"]["spanId"]),
    }
    told = values(call)
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert told["gen_ai.response.finish_reasons"] == {"values": [{"stringValue": "length"}]}
    assert {span["status"]["code"] for span in spans.values()} == {OK}
    assert [event["name"] for event in spans["prefill"]["events"]] == ["chunk"]
    assert spans["decode"]["events"][0]["name"] == "first token"


def test_another_program_sees_which_call_was_refused(traced) -> None:
    received, http = traced
    answer = http.post(
        "/v1/completions", json={"prompt": "", "max_tokens": -1}, headers={"x-request-id": "bad"}
    )
    assert answer.status_code == 400
    (call,) = received.spans("bad").values()
    told = values(call)
    assert (told["http.response.status_code"], told["error.type"]) == (400, "invalid_request_error")
