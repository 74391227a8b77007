"""What the engine could not do in time, and what a client that must come back is told."""

from __future__ import annotations

import json
import threading

import pytest

from anychip.server.turnover import LONGEST_S, Turnover
from scripted_engine import RUN, WAIT
from served import config_for, running, wait_until

COMPLETIONS = "/v1/completions"


def events(answer):
    return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_waited_too_long_may_come_back(http, stream):
    body = {"prompt": [WAIT], "max_tokens": 9, "stream": stream}
    answer = http.post(COMPLETIONS, json=body)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("queue_timeout", "service_unavailable")
    assert error["message"] == "scripted: waited_too_long"


def test_a_request_that_ran_too_long_is_told_so(http):
    body = {"input_ids": [97, RUN], "sampling_params": {"max_new_tokens": 100}}
    answer = http.post("/generate", json=body)
    assert answer.status_code == 504 and "retry-after" not in answer.headers
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("request_timeout", "timeout_error")


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/chat/completions", "/generate"])
def test_a_stream_that_ran_too_long_ends_with_an_error_event(http, path):
    text = chr(RUN) + "a"
    body = {
        COMPLETIONS: {"prompt": text, "max_tokens": 100},
        "/generate": {"text": text, "sampling_params": {"max_new_tokens": 100}},
    }.get(path, {"messages": [{"role": "user", "content": text}], "max_tokens": 100})
    with http.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        *told, last = events(answer)
    assert told and last["error"]["code"] == "request_timeout"
    assert "[DONE]" not in str(told)


def test_a_full_queue_says_when_to_come_back(folder):
    limits = {"max_running_requests": 1, "max_queued_requests": 1}
    config = config_for(folder, chip_option={"step_s": "0.01"}, **limits)
    with running(config) as server, server.http() as http:
        body = {"prompt": "a", "max_tokens": 100}

        def ask():
            with server.http() as other:
                assert other.post(COMPLETIONS, json=body).status_code == 200

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for waiting, thread in enumerate(threads):
            thread.start()
            wait_until(lambda: server.service.client.stats.running == 1)
            wait_until(lambda n=waiting: server.service.client.stats.queued == n)
        answer = http.post(COMPLETIONS, json=body)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "queue_full"
        assert 1 <= int(answer.headers["retry-after"]) <= LONGEST_S
        for thread in threads:
            thread.join(20)
        assert http.post(COMPLETIONS, json=body).status_code == 200


def test_the_turnover_and_the_queue_give_the_seconds():
    now = [0.0]
    turnover = Turnover(lambda: now[0])
    assert turnover.wait_s(1000) == 1  # nothing is known
    for second in range(5):
        now[0] = float(second)
        turnover.ended()
    assert turnover.wait_s(0) == 1 and turnover.wait_s(10) == 8
    now[0] = 40.0  # nothing has ended since
    assert turnover.wait_s(3) == 24
    assert turnover.wait_s(10**6) == LONGEST_S


def test_the_schedulers_own_time_outs_reach_the_client(folder):
    limits = {"max_running_requests": 1, "waiting_timeout": 0.2, "running_timeout": 0.6}
    config = config_for(folder, chip_option={"step_s": "0.02"}, **limits)
    with running(config) as server, server.http() as http:
        body = {"prompt": "a", "max_tokens": 200}
        told = []

        def stream():
            with (
                server.http() as other,
                other.stream("POST", COMPLETIONS, json={**body, "stream": True}) as answer,
            ):
                told.extend(events(answer))

        first = threading.Thread(target=stream)
        first.start()
        wait_until(lambda: server.service.client.stats.running == 1)
        late = http.post(COMPLETIONS, json=body)
        assert late.status_code == 503 and late.json()["error"]["code"] == "queue_timeout"
        first.join(20)
        assert told[-1]["error"]["code"] == "request_timeout"
        wait_until(lambda: server.service.client.stats.running == 0)
        assert server.service.client.stats.pages_held == 0
