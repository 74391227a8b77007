from __future__ import annotations

import dataclasses
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from anychip.config import ServeConfig
from anychip.engine.supervisor import EngineState
from anychip.http.errors import ApiError, on_api_error
from anychip.server.health import health
from served import config_for, running, wait_until

COMMON = ("model_name", "chip")


def samples(http):
    text = http.get("/metrics").text
    return {
        (sample.name, *(v for k, v in sample.labels.items() if k not in COMMON)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_probes(http):
    assert http.get("/health").json()["status"] == "ok"
    assert http.get("/ready").json() == {"status": "ready", "model": "tiny"}


def test_metrics_move_with_a_request(http):
    before = samples(http)
    http.post("/v1/completions", json={"prompt": "count me", "max_tokens": 5})
    after = samples(http)

    def moved(*name):
        return after[name] - before.get(name, 0)

    assert moved("anychip_prompt_tokens_total") == 8
    assert moved("anychip_generated_tokens_total") == 5
    assert moved("anychip_time_to_first_token_seconds_count") == 1
    assert moved("anychip_time_per_output_token_seconds_count") == 1
    assert moved("anychip_e2e_request_latency_seconds_count") == 1
    assert moved("anychip_requests_finished_total", "length") == 1
    assert moved("anychip_requests_aborted_total") == 0
    assert after[("anychip_requests_running",)] == 0
    assert after[("anychip_waiting_tokens",)] == 0
    assert 0 <= after[("anychip_cache_hit_ratio",)] <= 1
    pages = [after[("anychip_kv_pages", state)] for state in ("free", "evictable", "held")]
    assert sum(pages) == 256


def test_server_info_tells_config_engine_and_stats(http):
    info = http.get("/server_info").json()
    assert len(info["instance_id"]) == 32
    assert info["config"]["random_seed"] == 7
    assert info["engine"]["backend"] == "scripted" and info["engine"]["page_size"] == 4
    assert info["stats"]["pages_total"] == 256 and info["state"] == "ready"


def test_the_model_card_names_the_length(http):
    card = http.get("/v1/models").json()["data"][0]
    assert card["id"] == "tiny" and card["max_model_len"] == 256 and card["object"] == "model"


@dataclasses.dataclass
class Client:
    """An engine client that was last heard at some time."""

    state: EngineState
    age: float
    reason: str = "it broke"

    @property
    def ready(self):
        return self.state is EngineState.READY

    def heartbeat_age(self):
        return self.age


@dataclasses.dataclass
class Stub:
    client: Client
    config: ServeConfig = dataclasses.field(
        default_factory=lambda: ServeConfig(watchdog_timeout=300)
    )


@pytest.mark.parametrize(
    ("state", "age", "code"),
    [
        (EngineState.READY, 0.1, None),
        (EngineState.READY, 299.0, None),
        (EngineState.READY, 301.0, "engine_silent"),
        (EngineState.RESTARTING, 900.0, None),
        (EngineState.FAILED, 0.1, "engine_failed"),
    ],
)
def test_health_fails_on_a_stale_heartbeat_and_a_lost_engine(state, age, code):
    app = Starlette(routes=[Route("/health", health)], exception_handlers={ApiError: on_api_error})
    app.state.service = Stub(Client(state, age))
    answer = TestClient(app).get("/health")
    assert answer.status_code == (200 if code is None else 503)
    if code is None:
        assert answer.json()["heartbeat_age"] == age
    else:
        assert answer.json()["error"]["code"] == code


def test_a_long_step_is_neither_dead_nor_unready(folder):
    """A probe answers at once while the engine computes, and asks it nothing."""
    config = config_for(folder, chip_option={"step_s": "1.5"})
    with running(config) as server, server.http() as http, server.http() as other:
        body = {"prompt": "a", "max_tokens": 1}
        call = threading.Thread(target=other.post, args=("/v1/completions",), kwargs={"json": body})
        call.start()
        wait_until(lambda: server.service.live)
        steps = server.service.client.stats.steps
        for path in ("/health", "/ready", "/metrics") * 3:
            assert http.get(path).status_code == 200
        assert server.service.live and server.service.client.stats.steps == steps
        call.join(20)
