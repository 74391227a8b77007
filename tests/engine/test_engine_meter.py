"""What the engine counts, and that counting never disturbs it."""

from __future__ import annotations

import logging
import threading

import msgspec

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.memory import MemoryInfo
from anychip.contract.optional import Reading
from anychip.engine.device_watch import DeviceWatch, swapped_bytes
from anychip.engine.engine import Engine
from anychip.engine.meter import EVERY_S, Meter
from anychip.figures import EngineFigures, committed_share
from anychip.plan import CacheLimits, Row, StepPlan, StepResult
from anychip.request import Request, SamplingParams
from anychip.schedule.scheduler import Scheduler
from served import wait_until

LIMITS = CacheLimits(
    pages=64, page_size=4, context_length=64, max_running=4, step_tokens=16, chunk=16
)


class Queues:
    def waiting(self):
        return {"slots": 2}

    def tokens_in_flight(self):
        return 9


class Broken(Queues):
    def waiting(self):
        raise ZeroDivisionError("a bug in what counts")


class Ones:
    """A runner whose every token is 1."""

    def run(self, plan):
        return StepResult(tokens=tuple(1 if row.sample else -1 for row in plan.rows))

    def close(self):
        pass


def plan(decoding, *lengths):
    rows = tuple(Row(slot=n, tokens=(1,) * k, start=0, sample=True) for n, k in enumerate(lengths))
    return StepPlan(step=1, rows=rows, decoding=decoding)


def test_steps_are_counted_by_phase():
    meter = Meter()
    for step in (plan(0, 5), plan(2, 1, 1), plan(1, 1, 7), plan(2, 3, 1)):
        meter.landed(step, 0.004, 0.001)
    found = meter.snapshot(Queues(), compiling=3)
    assert {phase: sum(b.counts) for phase, b in found.step_seconds.items()} == {
        "prefill": 1,
        "decode": 2,
        "mixed": 1,
    }
    assert found.step_tokens == {"decode": 7, "prefill": 12}
    assert found.step_rows == {"decode": 5, "prefill": 2}
    assert found.waiting == {"slots": 2, "grammar": 3} and found.tokens_in_flight == 9
    assert found.python_seconds["commit"] == 0.004
    assert sum(found.batch_rows.counts) == 4 and found.batch_tokens.total == 19


def test_it_travels_and_is_taken_now_and_then():
    now = [5.0]
    meter = Meter(clock=lambda: now[0])
    assert meter.is_due(idle=False)
    found = meter.snapshot(Queues(), compiling=0)
    assert found.taken_at == 5.0 and not meter.is_due(idle=False) and meter.is_due(idle=True)
    now[0] += EVERY_S
    assert meter.is_due(idle=False)
    fact = ErrorFact(ChipLayer.MEMORY, ErrorKind.OUT_OF_MEMORY, False, "full")
    meter.failed(ChipError(fact, chip="some"))
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=EngineFigures)
    assert sent.chip_errors == {("memory", "out of memory"): 1} and sent == found


def test_an_error_in_counting_is_counted_and_logged_once(caplog):
    meter = Meter()
    with caplog.at_level(logging.WARNING, "anychip.engine"):
        for _ in range(3):
            found = meter.snapshot(Broken(), compiling=0)
    assert found.errors == 2  # the last one is told by the next snapshot
    assert meter.snapshot(Queues(), compiling=0).errors == 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert "ZeroDivisionError: a bug in what counts" in line


def test_an_engine_goes_on_where_its_figures_fail():
    engine = Engine(Scheduler(LIMITS, frozenset()), Ones())
    engine.meter.landed = lambda *told: Meter.landed(engine.meter, None, *told[1:])
    engine.submit(Request(id="a", prompt=(2, 3), params=SamplingParams(max_tokens=3)))
    tokens, figures = [], []
    while engine.has_work():
        tokens += [token for output in engine.step() for token in output.token_ids]
        figures.append(engine.figures())
    assert tokens == [1, 1, 1]
    assert figures[0] is not None and figures[-1].errors == 3
    engine.close()


class Card:
    """Telemetry that fails at first, and says which thread asked."""

    def __init__(self):
        self.asked = []

    def read(self):
        self.asked.append(threading.current_thread().name)
        if len(self.asked) < 3:
            raise OSError("the driver is asleep")
        return Reading(MemoryInfo(100, 30, 70, 60, "a card"), utilization=0.5, power=70.0)


def test_the_device_is_read_beside_the_loop_and_may_fail(caplog):
    card = Card()
    with caplog.at_level(logging.WARNING, "anychip.engine"):
        watch = DeviceWatch(card, 0.001)
        wait_until(lambda: watch.latest is not None)
    watch.close()
    found = watch.latest
    assert found.memory == (100, 30, 70, 60) and found.source == "a card"
    assert (found.utilization, found.temperature, found.power) == (0.5, None, 70.0)
    assert watch.errors == 2 and set(card.asked) == {"device-watch"}
    assert sum("the driver is asleep" in record.getMessage() for record in caplog.records) == 1
    asked = len(card.asked)
    assert not any(thread.name == "device-watch" for thread in threading.enumerate())
    assert len(card.asked) == asked


def test_without_telemetry_the_process_is_read_all_the_same(tmp_path):
    watch = DeviceWatch(None, 60.0)
    wait_until(lambda: watch.latest is not None)
    watch.close()
    assert watch.latest.memory is None and watch.latest.swapped >= 0
    status = tmp_path / "status"
    status.write_text("Name:\tx\nVmSwap:\t     12 kB\n")
    assert swapped_bytes(status) == 12 * 1024 and swapped_bytes(tmp_path / "none") == 0


def test_weights_and_cache_are_what_is_committed():
    memory = {"total": 100, "weights": 50, "workspace": 5, "cache pages": 30, "headroom": 15}
    assert committed_share(memory) == 0.8 and committed_share({}) == 0.0
