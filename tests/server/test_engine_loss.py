from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from anychip.engine.supervisor import RestartPolicy
from scripted_engine import FAIL, FATAL, KILL
from served import config_for, running, wait_until

COMMON = 'chip="scripted",model_name="tiny"'
KILLER = {"prompt": [KILL], "max_tokens": 2}


@pytest.fixture
def fragile(folder):
    config = config_for(folder, chip_option={"step_s": "0.01"})
    with running(config, RestartPolicy(first_pause_s=0.3, deaths=2)) as server:
        yield server


def test_clients_are_told_and_readiness_drops_until_the_restart(fragile):
    with fragile.http() as http, fragile.http() as other:
        body = {"prompt": "a", "max_tokens": 200, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as stream:
            lines = (line for line in stream.iter_lines() if line)
            assert "choices" in next(lines)
            killed = other.post("/v1/completions", json=KILLER)
            assert killed.status_code == 500 and "SIGKILL" in killed.json()["error"]["message"]
            last = list(lines)[-1]
        assert "SIGKILL" in json.loads(last[6:])["error"]["message"]  # and no [DONE]
        ready = other.get("/ready")
        assert ready.status_code == 503 and "restarting" in ready.json()["error"]["message"]
        shown = other.get("/metrics").text
        for state in ("evictable", "held"):
            assert f'anychip_kv_pages{{{COMMON},state="{state}"}} 0.0' in shown
        refused = other.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        assert other.get("/health").status_code == 200
        wait_until(lambda: other.get("/ready").status_code == 200)
        again = other.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
        assert again.json()["choices"][0]["text"] == "bc"
        shown = other.get("/metrics").text
        assert f"anychip_engine_deaths_total{{{COMMON}}} 1.0" in shown


def test_giving_up_is_told_and_ends_with_one(fragile):
    with fragile.http() as http:
        for _ in range(2):
            wait_until(lambda: http.get("/ready").status_code == 200)
            http.post("/v1/completions", json=KILLER)
        wait_until(lambda: http.get("/health").status_code == 503)
        message = http.get("/health").json()["error"]["message"]
        assert "2 engine deaths" in message and "SIGKILL" in message
        assert http.post("/flush_cache").status_code == 503
    fragile.ask_to_stop()
    fragile.thread.join(20)
    assert fragile.exit_code == 1


RIGHT = "bcdefghijklmnopqrstuvwxyza"


def stream_on(server, over: threading.Event, seen: Counter) -> None:
    """Ask again and again: the whole answer and [DONE], or a part of it and an error."""
    body = {"prompt": "a", "max_tokens": len(RIGHT), "stream": True, "temperature": 0}
    with server.http() as http:
        while not over.is_set():
            with http.stream("POST", "/v1/completions", json=body) as answer:
                lines = [line for line in answer.iter_lines() if line]
            if answer.status_code == 200:
                seen[look_at([line.removeprefix("data: ") for line in lines])] += 1
                continue
            message = json.loads("".join(lines))["error"]["message"]
            assert answer.status_code in (500, 503) and "SIGKILL" in message, message
            seen["refused"] += 1
            time.sleep(0.02)


def look_at(events: list[str]) -> str:
    """What one stream came to. AssertionError where it is neither right nor clear."""
    whole = events[-1] == "[DONE]"
    told = [json.loads(event) for event in (events[:-1] if whole else events)]
    text = "".join(part["choices"][0]["text"] for part in told if "choices" in part)
    if whole:
        assert text == RIGHT and all("choices" in part for part in told)
        return "whole"
    assert RIGHT.startswith(text) and "SIGKILL" in told[-1]["error"]["message"]
    return "ended"


def test_streams_under_load_are_whole_or_end_with_an_error(folder):
    config = config_for(folder, chip_option={"step_s": "0.005"}, max_running_requests=4)
    policy = RestartPolicy(first_pause_s=0.05, deaths=9)
    over, seen, rng = threading.Event(), Counter(), Random(3)

    def answer_more() -> None:
        before = seen["whole"]
        wait_until(lambda: seen["whole"] > before + 8)

    with running(config, policy) as server, ThreadPoolExecutor(8) as pool:
        engine = server.service.client
        clients = [pool.submit(stream_on, server, over, seen) for _ in range(8)]
        try:
            for death in range(3):
                answer_more()
                time.sleep(rng.random() / 10)
                os.kill(engine.pid, signal.SIGKILL)
                wait_until(lambda death=death: engine.deaths > death)
            answer_more()
        finally:
            over.set()
        for client in clients:
            client.result(20)
        wait_until(lambda: engine.stats.running == 0)
        assert (engine.stats.pages_held, engine.stats.check_violations) == (0, 0)
    assert seen["ended"] >= 3


def test_a_request_that_killed_the_engine_twice_is_refused(folder):
    policy = RestartPolicy(first_pause_s=0.01, deaths=4)
    with running(config_for(folder), policy) as server, server.http() as http:
        for _ in range(2):
            wait_until(lambda: http.get("/ready").status_code == 200)
            assert http.post("/v1/completions", json=KILLER).status_code == 500
        wait_until(lambda: http.get("/ready").status_code == 200)
        refused = http.post("/v1/completions", json=KILLER)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "present_in_crashes"
        fine = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert fine.status_code == 200 and server.service.client.deaths == 2


def test_errors_of_the_chip_are_counted_whether_the_engine_survives_or_not(fragile):
    with fragile.http() as http:

        def counted():
            found = re.search(r"anychip_chip_errors_total{(.*)} (.*)", http.get("/metrics").text)
            assert found is None or 'kind="device lost",layer="execution"' in found[1]
            return 0.0 if found is None else float(found[2])

        for token, count in ((FAIL, 1), (FATAL, 2)):
            assert counted() == count - 1
            failed = http.post("/v1/completions", json={"prompt": [token], "max_tokens": 2})
            assert failed.status_code == 500
            wait_until(lambda count=count: counted() == count)
        wait_until(lambda: http.get("/ready").status_code == 200)
        assert (
            http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
        )
        assert counted() == 2  # the next engine begins at 0, and the sum does not
