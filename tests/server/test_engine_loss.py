from __future__ import annotations

import json

import pytest

from anychip.engine.supervisor import RestartPolicy
from scripted_engine import KILL
from served import config_for, running, wait_until

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
        for state in ("cached", "held"):
            assert f'anychip_kv_pages{{model_name="tiny",state="{state}"}} 0.0' in shown
        refused = other.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        assert other.get("/health").status_code == 200
        wait_until(lambda: other.get("/ready").status_code == 200)
        again = other.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
        assert again.json()["choices"][0]["text"] == "bc"
        assert 'anychip_engine_deaths_total{model_name="tiny"} 1.0' in other.get("/metrics").text


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
