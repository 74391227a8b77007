"""What `diagnose` makes of made-up readings: each hidden cause found, none in a healthy server."""

from __future__ import annotations

import made_evidence as made
import pytest

from anychip.bench.diagnose import diagnose, something_found
from anychip.bench.server_view import DeviceReading, device_reading
from anychip.engine.evidence import HANDOVER, IO, LOCK, NATIVE, PYTHON

FIRST = ["device utilization", "scheduler or operators"]
HIDDEN = ["pool fragmentation", "lock contention", "page migration"]
REST = ["prefix cache", "queue"]
WAITS_FOR_LOCK = {(LOCK, "chip"): 0.5, (NATIVE, "chip"): 0.5}
STARVED = {(HANDOVER, "engine"): 0.9, (NATIVE, "chip"): 0.1}
PLANS = {(PYTHON, "schedule"): 0.9, (IO, "engine"): 0.1}


def found(seen):
    return [finding.name for finding in diagnose(seen) if finding.verdict == "found"]


def finding(seen, name):
    (one,) = (finding for finding in diagnose(seen) if finding.name == name)
    return one


def test_a_healthy_server_has_every_look_in_order_and_none_finds_anything():
    findings = diagnose(made.seen())
    assert [finding.name for finding in findings] == FIRST + HIDDEN + REST
    assert {finding.verdict for finding in findings} == {"fine"}
    assert not something_found(findings) and all(finding.evidence for finding in findings)


CASES = {
    "pool waste": ("pool fragmentation", {"device": {"fragmentation": 0.4}}),
    "pieces": ("pool fragmentation", {"device": {"free": 1000.0, "largest": 300.0}}),
    "lock": ("lock contention", {"looks": [made.look(WAITS_FOR_LOCK)]}),
    "faults": ("page migration", {"looks": [made.look(engine={"major_faults": 400})]}),
    "moves": ("page migration", {"looks": [made.look(migrated=9000)]}),
    "swap": (
        "page migration",
        {
            "looks": [made.look(engine={"swap_bytes": 2**20})],
            "memory": {"total": 100, "weights": 50, "cache pages": 40},
        },
    ),
    "scheduler": ("scheduler or operators", {"looks": [made.look(STARVED, PLANS)]}),
    "hit rate": (
        "prefix cache",
        {"prompt_tokens": 50_000, "cached_tokens": 100, "evicted_pages": 900},
    ),
    "queue": ("queue", {"read": made.polls(running=made.MAX_RUNNING, queued=9)}),
    "http": ("HTTP process", {"looks": [made.look(http={(PYTHON, "server"): 0.9})]}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cause_is_found_and_no_other(case):
    name, readings = CASES[case]
    seen = made.seen(**readings)
    assert found(seen) == [name]
    one = finding(seen, name)
    assert one.evidence and one.meaning and one.step


def test_a_lock_is_told_with_its_place():
    one = finding(made.seen(looks=[made.look(WAITS_FOR_LOCK)]), "lock contention")
    assert "plugin/memory.py:12 (allocate)" in one.meaning and "50%" in one.evidence


def test_a_full_memory_alone_is_a_warning():
    full = {"total": 100, "weights": 50, "cache pages": 40}
    one = finding(made.seen(memory=full), "page migration")
    assert one.verdict == "unknown" and "take 90% of the memory" in one.evidence
    assert "keep 15% free" in one.step


def test_a_busy_chip_is_no_fault_but_told():
    busy = made.look({(NATIVE, "chip"): 0.95})
    one = finding(made.seen(looks=[busy]), "scheduler or operators")
    assert one.verdict == "fine" and one.meaning.startswith("operators:")
    assert one.step == "anychip coverage --backend plugin --model-path MODEL"


def test_a_server_without_work_has_no_bottleneck():
    idle = made.look({(HANDOVER, "engine"): 1.0}, {(IO, "engine"): 1.0})
    one = finding(made.seen(looks=[idle]), "scheduler or operators")
    assert one.verdict == "fine" and "nothing to compute" in one.evidence


def test_what_nobody_tells_is_unknown():
    assert finding(made.seen(device={}), "pool fragmentation").verdict == "unknown"


def test_the_devices_series_are_read_off_the_metrics():
    page = (
        "# TYPE anychip_device_utilization_ratio gauge\n"
        'anychip_device_utilization_ratio{model_name="m",chip="c"} 0.5\n'
        'anychip_device_memory_free_bytes{model_name="m",chip="c",source="s"} 10\n'
        'anychip_device_pool_fragmentation_ratio{model_name="m",chip="c"} 0.25\n'
        'anychip_requests_waiting{model_name="m",chip="c",reason="pages"} 3\n'
        "anychip_steps_total 5\n"
    )
    told = {"utilization": 0.5, "free": 10.0, "fragmentation": 0.25, "waiting": {"pages": 3.0}}
    assert device_reading(page) == DeviceReading(**told)
    assert device_reading("<html>") == DeviceReading()


def test_moves_that_the_kernel_does_not_tell_are_not_told_as_none():
    one = finding(made.seen(looks=[made.look(migrated=None)]), "page migration")
    assert "does not tell how many were moved" in one.evidence and "0 moved" not in one.evidence
