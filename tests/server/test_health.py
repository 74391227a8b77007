from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples(http):
    text = http.get("/metrics").text
    return {
        (sample.name, *(value for key, value in sample.labels.items() if key != "model_name")): (
            sample.value
        )
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
    assert moved("anychip_generation_tokens_total") == 5
    assert moved("anychip_time_to_first_token_seconds_count") == 1
    assert moved("anychip_time_per_output_token_seconds_count") == 1
    assert moved("anychip_e2e_request_latency_seconds_count") == 1
    assert moved("anychip_num_requests_total", "length") == 1
    assert moved("anychip_num_aborted_requests_total") == 0
    assert after[("anychip_num_running_reqs",)] == 0
    assert after[("anychip_num_queue_reqs",)] == 0
    assert 0 <= after[("anychip_cache_hit_rate",)] <= 1
    pages = [after[("anychip_kv_pages", state)] for state in ("free", "cached", "held")]
    assert sum(pages) == 256


def test_server_info_tells_config_engine_and_stats(http):
    info = http.get("/server_info").json()
    assert info["config"]["random_seed"] == 7
    assert info["engine"]["backend"] == "scripted" and info["engine"]["page_size"] == 4
    assert info["stats"]["pages_total"] == 256 and info["state"] == "ready"


def test_the_model_card_names_the_length(http):
    card = http.get("/v1/models").json()["data"][0]
    assert card["id"] == "tiny" and card["max_model_len"] == 256 and card["object"] == "model"
