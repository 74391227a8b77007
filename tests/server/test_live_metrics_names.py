"""/metrics of a served model: every series of the catalogue, the aliases asked for, no other."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anychip.engine.client import DEFAULT_BUILDER
from anychip.server.metrics.aliases import ALIASES, SGLANG, VLLM
from anychip.server.metrics.catalogue import CATALOGUE, COMMON_LABELS
from served import config_for, running, wait_until
from tiny_models import make_hf_folder

UNTOLD = {
    "anychip_device_utilization_ratio",
    "anychip_device_temperature_celsius",
    "anychip_device_power_watts",
    "anychip_device_pool_used_bytes",
    "anychip_device_pool_cached_bytes",
    "anychip_device_pool_asked_bytes",
    "anychip_device_pool_fragmentation_ratio",
    "anychip_chip_errors_total",
}
"""Of the fake chip: it is software and has no pool. And nothing fails here."""
ASK = {"prompt": list(range(5, 45)), "max_tokens": 12, "ignore_eos": True}
FORMED = {"prompt": "a form", "max_tokens": 6, "regex": "[ab]{3}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    config = config_for(
        make_hf_folder(tmp_path_factory.mktemp("tiny")),
        backend="fake",
        max_total_tokens=1024,
        metrics_alias="sglang,vllm",
        operator_timing_interval=4,
        telemetry_interval=0.05,
    )
    with running(config, builder=DEFAULT_BUILDER) as server, server.http() as http:
        for _ in range(2):
            assert http.post("/v1/completions", json=ASK).status_code == 200
        assert http.post("/v1/completions", json=FORMED).status_code == 200
        assert http.post("/nowhere/to/be/found", json={}).status_code == 404
        with http.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as stream:
            assert any(line.startswith("data: {") for line in stream.iter_lines())

        def counted():
            return families(http)["anychip_grammar_mask_seconds"].samples[-1].value

        wait_until(counted)  # the figures follow the answer
        yield http


def families(http):
    return {named(f): f for f in text_string_to_metric_families(http.get("/metrics").text)}


def named(family):
    return family.name + "_total" if family.type == "counter" else family.name


def values(family, *suffixes):
    return {
        tuple(v for k, v in sample.labels.items() if k not in COMMON_LABELS): sample.value
        for sample in family.samples
        if not suffixes or sample.name.endswith(suffixes)
    }


def test_every_series_is_there_and_no_other(served):
    found = families(served)
    aliases = {alias.name for engine in ALIASES.values() for alias in engine}
    assert set(found) == set(CATALOGUE) | aliases
    assert {name for name in CATALOGUE if not found[name].samples} == UNTOLD
    for name, metric in CATALOGUE.items():
        assert found[name].type == metric.kind
        for sample in found[name].samples:
            assert set(sample.labels) - {"le"} == {*COMMON_LABELS, *metric.labels}
            assert sample.labels["model_name"] and sample.labels["chip"] == "fake"


def test_figures_are_those_of_what_was_asked(served):
    found = families(served)

    def one(name, *labels):
        return values(found["anychip_" + name])[labels]

    tokens = values(found["anychip_step_tokens_total"])
    prompts, cached = one("prompt_tokens_total"), one("cached_tokens_total", "device")
    assert cached > 0 and tokens[("prefill",)] == prompts - cached
    assert one("cache_hit_ratio") == pytest.approx(cached / prompts)
    steps = values(found["anychip_step_seconds"], "_count")
    assert sum(steps.values()) == one("steps_total")
    assert steps[("decode",)] > steps[("prefill",)] > 0
    assert one("chip_seconds_total") > 0 and one("python_seconds_total", "plan") > 0
    assert one("requests_finished_total", "length") >= 3
    lengths = values(found["anychip_request_generated_tokens"], "_sum")
    assert lengths[()] == one("generated_tokens_total")
    assert values(found["anychip_queue_time_seconds"], "_count")[()] == 4
    assert values(found["anychip_grammar_compile_seconds"], "_count")[()] == 1
    assert one("http_responses_total", "other", "POST", "404") == 1
    assert one("http_responses_total", "/v1/completions", "POST", "200") == 4
    memory = [
        one(f"device_memory_{use}_bytes", "accounting of the fake device")
        for use in ("capacity", "used", "free")
    ]
    assert memory[0] == memory[1] + memory[2] and memory[1] > 0
    operators = values(found["anychip_device_operator_calls_total"])
    assert operators["sample", "synchronized"] > 0
    assert one("process_cpu_seconds_total", "engine") > 0
    assert 0 <= one("snapshot_age_seconds", "engine") < 120


def test_aliases_have_the_values_and_labels_of_the_other_engine(served):
    found = families(served)
    for alias in (*SGLANG, *VLLM):
        family = found[alias.name]
        assert family.type == CATALOGUE[alias.source].kind, alias.name
        kept = {"model_name", "chip", *alias.labels.values()}
        kept |= {"engine"} if alias in VLLM else set()
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == kept, alias.name
    prompts = values(found["anychip_prompt_tokens_total"])[()]
    assert values(found["vllm:prefix_cache_queries_total"])[("0",)] == prompts
    assert values(found["sglang:prompt_tokens_total"])[()] == prompts
    assert sum(values(found["sglang:max_total_num_tokens"]).values()) == 1024
    reasons = values(found["vllm:num_requests_waiting_by_reason"])
    assert set(reasons) == {("0", "capacity"), ("0", "deferred")}
    ours = values(found["anychip_time_to_first_token_seconds"], "_bucket")
    theirs = values(found["sglang:time_to_first_token_seconds"], "_bucket")
    assert ours == theirs and ours[("+Inf",)] == 4


def test_server_info_is_still_json(served):
    assert json.loads(served.get("/server_info").text)["config"]["metrics_alias"] == "sglang,vllm"
