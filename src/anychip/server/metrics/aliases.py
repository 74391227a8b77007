"""Names of other engines' metrics, for dashboards that read them: --metrics-alias.

Only what has a true counterpart here is exported. The labels are the other engine's, beside `chip`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from anychip.server.metrics.catalogue import CATALOGUE

Engine = Literal["sglang", "vllm"]

CONSTANT: Mapping[str, Mapping[str, str]] = {"sglang": {}, "vllm": {"engine": "0"}}
"""Labels that every series of an engine has beside `model_name`."""


@dataclass(frozen=True)
class Alias:
    """Another engine's series: the sum of those of `source` that `only` lets through.

    only: values of our labels, all where a label is not named. labels: ours → theirs; others are
    summed over. spelled: values of labels that the other engine writes otherwise. pages: the
    source counts pages, the alias tokens. note: where the two differ in a detail.
    """

    name: str
    source: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    pages: bool = False
    note: str = ""


def _state(name: str, source: str, state: str, *, pages: bool = False) -> Alias:
    return Alias(name, source, only={"state": (state,)}, pages=pages)


_IN_THE_QUEUE = {"reason": ("slots", "pages", "tokens", "prefix")}
_CAPACITY = {
    **dict.fromkeys(("slots", "pages", "tokens"), "capacity"),
    **dict.fromkeys(("prefix", "grammar"), "deferred"),
}

SGLANG = (
    Alias("sglang:num_running_reqs", "anychip_requests_running"),
    Alias("sglang:num_queue_reqs", "anychip_requests_waiting", only=_IN_THE_QUEUE),
    Alias(
        "sglang:num_grammar_queue_reqs",
        "anychip_requests_waiting",
        only={"reason": ("grammar",)},
    ),
    Alias("sglang:max_total_num_tokens", "anychip_kv_tokens"),
    _state("sglang:num_used_tokens", "anychip_kv_tokens", "held"),
    _state("sglang:kv_used_tokens", "anychip_kv_tokens", "held"),
    _state("sglang:kv_evictable_tokens", "anychip_kv_tokens", "evictable"),
    _state("sglang:kv_available_tokens", "anychip_kv_tokens", "free"),
    Alias("sglang:token_usage", "anychip_kv_usage_ratio"),
    Alias("sglang:hicache_host_total_tokens", "anychip_host_pages", pages=True),
    _state("sglang:hicache_host_used_tokens", "anychip_host_pages", "used", pages=True),
    Alias("sglang:evicted_tokens_total", "anychip_evicted_pages_total", pages=True),
    Alias(
        "sglang:cache_hit_rate",
        "anychip_cache_hit_ratio",
        note="over all prompts so far; SGLang: over the last ones",
    ),
    Alias("sglang:prompt_tokens_total", "anychip_prompt_tokens_total"),
    Alias("sglang:generation_tokens_total", "anychip_generated_tokens_total"),
    Alias(
        "sglang:cached_tokens_total",
        "anychip_cached_tokens_total",
        labels={"tier": "cache_source"},
    ),
    Alias("sglang:new_token_ratio", "anychip_expected_output_ratio"),
    Alias("sglang:num_retracted_requests_total", "anychip_retractions_total"),
    Alias("sglang:num_requests_total", "anychip_requests_finished_total"),
    Alias("sglang:num_aborted_requests_total", "anychip_requests_aborted_total"),
    Alias("sglang:time_to_first_token_seconds", "anychip_time_to_first_token_seconds"),
    Alias("sglang:inter_token_latency_seconds", "anychip_inter_token_latency_seconds"),
    Alias(
        "sglang:request_time_per_output_token_seconds",
        "anychip_time_per_output_token_seconds",
    ),
    Alias("sglang:e2e_request_latency_seconds", "anychip_e2e_request_latency_seconds"),
    Alias("sglang:queue_time_seconds", "anychip_queue_time_seconds"),
    Alias("sglang:prompt_tokens_histogram", "anychip_request_prompt_tokens"),
    Alias("sglang:generation_tokens_histogram", "anychip_request_generated_tokens"),
    Alias("sglang:grammar_compilation_time_seconds", "anychip_grammar_compile_seconds"),
    Alias(
        "sglang:http_requests_total",
        "anychip_http_requests_total",
        labels={"endpoint": "endpoint", "method": "method"},
    ),
    Alias(
        "sglang:http_responses_total",
        "anychip_http_responses_total",
        labels={"endpoint": "endpoint", "method": "method", "status": "status_code"},
    ),
)

VLLM = (
    Alias("vllm:num_requests_running", "anychip_requests_running"),
    Alias("vllm:num_requests_waiting", "anychip_requests_waiting"),
    Alias(
        "vllm:num_requests_waiting_by_reason",
        "anychip_requests_waiting",
        labels={"reason": "reason"},
        spelled=_CAPACITY,
    ),
    Alias("vllm:kv_cache_usage_perc", "anychip_kv_usage_ratio", note="1 is all of it"),
    Alias("vllm:prefix_cache_queries_total", "anychip_prompt_tokens_total"),
    Alias("vllm:prefix_cache_hits_total", "anychip_cached_tokens_total"),
    Alias("vllm:prompt_tokens_total", "anychip_prompt_tokens_total"),
    Alias("vllm:prompt_tokens_cached_total", "anychip_cached_tokens_total"),
    Alias("vllm:generation_tokens_total", "anychip_generated_tokens_total"),
    Alias("vllm:num_preemptions_total", "anychip_retractions_total"),
    Alias(
        "vllm:request_success_total",
        "anychip_requests_finished_total",
        labels={"finish_reason": "finished_reason"},
    ),
    Alias("vllm:iteration_tokens_total", "anychip_step_batch_tokens"),
    Alias("vllm:time_to_first_token_seconds", "anychip_time_to_first_token_seconds"),
    Alias("vllm:inter_token_latency_seconds", "anychip_inter_token_latency_seconds"),
    Alias(
        "vllm:request_time_per_output_token_seconds",
        "anychip_time_per_output_token_seconds",
    ),
    Alias("vllm:e2e_request_latency_seconds", "anychip_e2e_request_latency_seconds"),
    Alias("vllm:request_queue_time_seconds", "anychip_queue_time_seconds"),
    Alias("vllm:request_prompt_tokens", "anychip_request_prompt_tokens"),
    Alias("vllm:request_generation_tokens", "anychip_request_generated_tokens"),
)

ALIASES: Mapping[str, tuple[Alias, ...]] = {"sglang": SGLANG, "vllm": VLLM}


def alias_families(
    engines: Iterable[str], families: Mapping[str, Family], page_size: int
) -> Iterator[Family]:
    """The other engines' families. families: ours by the names of the catalogue."""
    for engine in engines:
        for alias in ALIASES[engine]:
            family = families[alias.source]
            yield _alias(alias, family, CONSTANT[engine], page_size if alias.pages else 1)


def _alias(alias: Alias, family: Family, constant: Mapping[str, str], factor: int) -> Family:
    kind = CATALOGUE[alias.source].kind
    ends = len(alias.source)
    name = alias.name.removesuffix("_total") if kind == "counter" else alias.name
    found = Family(name, f"The same as {alias.source}.", kind)
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        if all(sample.labels[label] in values for label, values in alias.only.items()):
            key = alias.name + sample.name[ends:], _labels(alias, sample, constant)
            sums[key] = sums.get(key, 0.0) + sample.value * factor
    for (series, labels), value in sums.items():
        found.add_sample(series, dict(labels), value)
    return found


def _labels(
    alias: Alias, sample: Sample, constant: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    kept = {label: sample.labels[label] for label in ("model_name", "chip")}
    theirs = {
        name: alias.spelled.get(sample.labels[ours], sample.labels[ours])
        for ours, name in alias.labels.items()
    }
    bound = {"le": sample.labels["le"]} if "le" in sample.labels else {}
    return tuple({**kept, **constant, **theirs, **bound}.items())
