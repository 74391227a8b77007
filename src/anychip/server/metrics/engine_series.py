"""The engine's figures, from its last snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric as Family

from anychip.figures import Buckets, EngineFigures
from anychip.http.families import Families, Samples, labelled
from anychip.plan import SchedulerStats
from anychip.server.metrics.sources import EngineView

_PLAIN: tuple[tuple[str, Callable[[SchedulerStats], float]], ...] = (
    ("anychip_requests_running", lambda s: s.running),
    ("anychip_waiting_tokens", lambda s: s.queued_tokens),
    ("anychip_kv_usage_ratio", lambda s: _share(s.pages_held, s.pages_total)),
    ("anychip_evicted_pages_total", lambda s: s.evicted_pages),
    ("anychip_host_saved_pages_total", lambda s: s.host_saved_pages),
    ("anychip_host_loaded_pages_total", lambda s: s.host_loaded_pages),
    ("anychip_state_snapshots_taken_total", lambda s: s.snapshots_taken),
    ("anychip_state_snapshots_evicted_total", lambda s: s.snapshots_evicted),
    ("anychip_prompt_tokens_total", lambda s: s.prompt_tokens),
    ("anychip_cache_hit_ratio", lambda s: _share(s.cached_tokens, s.prompt_tokens)),
    ("anychip_generated_tokens_total", lambda s: s.generated_tokens),
    ("anychip_retractions_total", lambda s: s.retractions),
    ("anychip_preemptions_total", lambda s: s.preemptions),
    ("anychip_requests_timed_out_total", lambda s: s.timed_out),
    ("anychip_expected_output_ratio", lambda s: s.expected_output),
    ("anychip_steps_total", lambda s: s.steps),
    ("anychip_check_violations_total", lambda s: s.check_violations),
)


STEPS, PHASES = ("prefill", "decode", "mixed"), ("prefill", "decode")
WAITING = ("slots", "pages", "tokens", "prefix", "grammar")


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def engine_series(families: Families, engine: EngineView) -> Iterator[Family]:
    """Families of the table ENGINE."""
    stats = engine.stats
    yield families.one("anychip_engine_ready", float(engine.ready))
    yield families.one("anychip_engine_deaths_total", engine.deaths)
    yield families.one("anychip_engine_max_running_requests", engine.info.max_running)
    for name, value in _PLAIN:
        yield families.one(name, value(stats))
    yield from _by_state(families, engine)
    tiers: Samples = {("device",): stats.cached_tokens_device, ("host",): stats.cached_tokens_host}
    yield families.many("anychip_cached_tokens_total", tiers)
    yield from _of_steps(families, engine.figures)
    yield from _of_runs(families, engine.figures)
    yield families.many("anychip_chip_errors_total", engine.chip_errors)


def _of_steps(families: Families, found: EngineFigures) -> Iterator[Family]:
    waiting = found.waiting or dict.fromkeys(WAITING, 0)
    yield families.many("anychip_requests_waiting", labelled(waiting))
    yield families.one("anychip_tokens_in_flight", found.tokens_in_flight)
    seconds = {(phase,): found.step_seconds.get(phase, Buckets()) for phase in STEPS}
    yield families.histogram("anychip_step_seconds", seconds)
    for name, counts in (("tokens", found.step_tokens), ("rows", found.step_rows)):
        by_phase = {phase: counts.get(phase, 0) for phase in PHASES}
        yield families.many(f"anychip_step_{name}_total", labelled(by_phase))
    yield families.histogram("anychip_step_batch_rows", {(): found.batch_rows})
    yield families.histogram("anychip_step_batch_tokens", {(): found.batch_tokens})
    yield families.many("anychip_python_seconds_total", labelled(found.python_seconds))
    yield families.histogram("anychip_grammar_compile_seconds", {(): found.grammar_compiles})
    yield families.one("anychip_telemetry_errors_total", found.errors)


def _of_runs(families: Families, found: EngineFigures) -> Iterator[Family]:
    run, device = found.run, found.device
    yield families.one("anychip_chip_seconds_total", run.chip_seconds)
    yield families.histogram("anychip_grammar_mask_seconds", {(): run.masks})
    yield families.one("anychip_host_operator_calls_total", run.host_calls)
    yield families.one("anychip_host_operator_bytes_total", run.host_bytes)
    faults = None if device is None else device.major_faults
    yield families.one("anychip_engine_major_page_faults_total", faults)
    yield families.one("anychip_engine_swap_bytes", None if device is None else device.swapped)


def _by_state(families: Families, engine: EngineView) -> Iterator[Family]:
    stats, page_size = engine.stats, engine.info.page_size
    pages: Samples = {
        ("free",): stats.pages_free,
        ("evictable",): stats.pages_cached,
        ("held",): stats.pages_held,
    }
    yield families.many("anychip_kv_pages", pages)
    yield families.many("anychip_kv_tokens", {k: n * page_size for k, n in pages.items()})
    yield families.many(
        "anychip_host_pages", _free_and_used(stats.host_slots_free, stats.host_slots_total)
    )
    yield families.many(
        "anychip_state_snapshots", _free_and_used(stats.snapshots_free, stats.snapshots_total)
    )


def _free_and_used(free: int, total: int) -> Samples:
    return {("free",): free, ("used",): total - free}
