"""The router's figures: what each word of the call path counts, and the text that is scraped."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from anychip.http.call_record import CallRecord
from anychip.router.asking import Ask
from anychip.router.choosing import Choice
from anychip.router.departed import GONE_S, Departed
from anychip.router.metrics.catalogue import CATALOGUE, ROUTER
from anychip.router.telemetry import STATES, WorkerView
from anychip.router.watching import Telemetry

ASK = Ask("/v1/chat/completions", prompt_tokens=100)


@pytest.fixture
def telemetry():
    """After a call that was refused by one worker, answered by another; and one that got nobody."""
    telemetry = Telemetry()
    workers = [WorkerView("a", "ready", 3, 300, 16, "fast"), WorkerView("b", "sick", 0, 0, None)]
    telemetry.follow(lambda: workers, {"a": "fast", "c": "slow"}.get)
    watch = telemetry.begun(record(), ASK.path, ASK)
    watch.tried(0, Choice("b", "prefix", 64))
    watch.try_ended("b", 503, "refused")
    watch.tried(1, Choice("a", "load", 0))
    watch.first_byte()
    watch.try_ended("a", 200, None)
    watch.ended(200)
    lost = telemetry.begun(record(), "/generate", ASK)
    lost.fell_back('choices>1: "b"')
    lost.ended(503)
    telemetry.breaker_opened("b")
    return telemetry


def record():
    return CallRecord(request_id="r", method="POST", path=ASK.path)


def value(telemetry, series):
    text = telemetry.metrics.exposition().decode()
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, flags=re.MULTILINE)
    return None if found is None else float(found[1])


@pytest.mark.parametrize(
    ("series", "count"),
    [
        ('requests_total{chip="fast",route="/v1/chat/completions",status="200",worker="a"}', 1),
        ('requests_total{chip="none",route="/generate",status="503",worker="none"}', 1),
        ('tries_total{chip="unknown",result="refused",worker="b"}', 1),
        ('tries_total{chip="fast",result="answered",worker="a"}', 1),
        ('retries_total{reason="refused"}', 1),
        ('choices_total{chip="unknown",why="prefix",worker="b"}', 1),
        ('choices_total{chip="fast",why="load",worker="a"}', 1),
        ('prompt_tokens_total{chip="fast",worker="a"}', 100),
        ('matched_prompt_tokens_total{chip="unknown",worker="b"}', 64),
        ('breaker_openings_total{chip="unknown",worker="b"}', 1),
        ('rule_fallbacks_total{rule="choices>1: \\"b\\""}', 1),
        ('first_byte_seconds_count{chip="fast",worker="a"}', 1),
        ('first_byte_seconds_bucket{chip="fast",le="+Inf",worker="a"}', 1),
        ("workers_ready", 1),
        ('worker_state{chip="fast",state="ready",worker="a"}', 1),
        ('worker_state{chip="fast",state="sick",worker="a"}', 0),
        ('worker_state{chip="unknown",state="sick",worker="b"}', 1),
        ('worker_calls{chip="fast",worker="a"}', 3),
        ('worker_prompt_tokens{chip="fast",worker="a"}', 300),
        ('worker_window{chip="fast",worker="a"}', 16),
        ('worker_window{chip="unknown",worker="b"}', None),
        ("telemetry_errors_total", 0),
    ],
)
def test_what_is_told_is_counted(telemetry, series, count):
    assert value(telemetry, f"anychip_router_{series}") == count


def test_a_match_is_never_more_than_the_prompt(telemetry):
    watch = telemetry.begun(record(), "/generate", Ask("/generate", prompt_tokens=3))
    watch.tried(0, Choice("c", "prefix", 32))
    telemetry.follow(lambda: [WorkerView("c", "ready", 1, 3, None)], lambda name: "slow")
    series = 'anychip_router_matched_prompt_tokens_total{chip="slow",worker="c"}'
    assert value(telemetry, series) == 3


def test_every_series_of_a_worker_says_its_chip(telemetry):
    for metric in ROUTER:
        assert ("worker" in metric.labels) == ("chip" in metric.labels), metric.name


def test_what_was_counted_of_workers_that_are_gone_for_long_is_forgotten(telemetry):
    before = telemetry.metrics.exposition().decode()
    assert before.count('worker="b"') > 5
    telemetry.follow(lambda: [WorkerView("a", "ready", 0, 0, None, "fast")], lambda name: None)
    after = telemetry.metrics.exposition().decode()
    assert 'worker="b"' not in after
    assert after.count('_total{chip="fast",worker="a"') == before.count(
        '_total{chip="fast",worker="a"'
    )
    assert value(telemetry, 'anychip_router_retries_total{reason="refused"}') == 1
    assert 'worker="none"' in after


def test_a_worker_that_left_is_told_for_five_minutes():
    now = [1000.0]
    departed = Departed(lambda: now[0])
    departed.left("old", "fast")
    now[0] += GONE_S - 1
    departed.left("new", None)
    assert departed.now() == {"old": "fast", "new": None}
    now[0] += 2
    assert departed.now() == {"new": None}


def test_every_family_is_shown_and_no_other(telemetry):
    text = telemetry.metrics.exposition().decode()
    shown = set(re.findall(r"^# TYPE (\S+) ", text, flags=re.MULTILINE))
    assert shown == set(CATALOGUE)
    assert len(CATALOGUE) == len(ROUTER)
    for metric in ROUTER:
        assert metric.name.startswith("anychip_router_") and metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_states_are_told_in_the_catalogue():
    assert all(state in CATALOGUE["anychip_router_worker_state"].help for state in STATES)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_promtool_has_nothing_to_say_about_the_routers_names(telemetry):
    found = subprocess.run(
        ["promtool", "check", "metrics"],
        input=telemetry.metrics.exposition(),
        capture_output=True,
        timeout=60,
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")
