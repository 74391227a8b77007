"""A broken book between two requests is told and counted; it ends nothing."""

from __future__ import annotations

import pytest

from anychip.engine.engine import Engine
from anychip.plan import CacheLimits
from anychip.request import FinishReason, Request, SamplingParams
from anychip.schedule.scheduler import Scheduler
from scripted_engine import ScriptedRunner

LIMITS = CacheLimits(
    pages=64, page_size=4, context_length=64, max_running=4, step_tokens=64, chunk=64
)


@pytest.fixture
def engine(monkeypatch):
    engine = Engine(Scheduler(LIMITS, frozenset()), ScriptedRunner(0.0))
    monkeypatch.setattr(engine, "_checked", float("-inf"))
    return engine


def answer(engine, name):
    params = SamplingParams(max_tokens=2, temperature=0.0)
    engine.submit(Request(id=name, prompt=(97,) * 5, params=params))
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def test_sound_books_are_not_talked_about(engine, caplog):
    assert answer(engine, "a")[-1].finish is FinishReason.LENGTH
    assert caplog.records == [] and engine.stats().check_violations == 0


def test_a_lost_page_is_a_log_line_and_a_figure_and_the_engine_goes_on(engine, caplog, monkeypatch):
    sound = engine.scheduler.check

    def broken():
        return [*sound(), "page 5 is nowhere"]

    monkeypatch.setattr(engine.scheduler, "check", broken)
    assert answer(engine, "a")[-1].finish is FinishReason.LENGTH
    assert [record.getMessage() for record in caplog.records] == ["scheduler: page 5 is nowhere"]
    assert answer(engine, "b")[-1].finish is FinishReason.LENGTH
