"""Steps in one thread, their bookkeeping in another."""

from __future__ import annotations

import sys
import threading

import pytest

from anychip.contract.errors import ChipError
from anychip.engine.engine import Engine
from anychip.engine.offline import run_requests
from anychip.plan import PREV, CacheLimits, StepPlan, StepResult
from anychip.request import FinishReason, Request, SamplingParams
from anychip.schedule.scheduler import Scheduler
from scripted_engine import EOS, FAIL, FATAL, ScriptedRunner


class Threaded(ScriptedRunner):
    """Keeps in which thread and for which rows it ran; PREV is what the slot sampled before."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.threads: set[int] = set()
        self.asked_for_previous = 0
        self._sampled: dict[int, int] = {}

    def run(self, plan: StepPlan) -> StepResult:
        self.threads.add(threading.get_ident())
        rows = []
        for row in plan.rows:
            if row.tokens == (PREV,):
                self.asked_for_previous += 1
                row = _with_token(row, self._sampled.get(row.slot, ord("a")))
            rows.append(row)
        result = super().run(StepPlan(step=plan.step, rows=tuple(rows)))
        self._sampled = {r.slot: t for r, t in zip(plan.rows, result.tokens, strict=True)}
        return result


def _with_token(row, token: int):
    return type(row)(
        slot=row.slot, tokens=(token,), start=row.start, sample=row.sample, noise=row.noise
    )


def engine(overlap: bool = True) -> Engine:
    limits = CacheLimits(
        pages=64, page_size=4, context_length=64, max_running=4, step_tokens=64, chunk=64
    )
    return Engine(Scheduler(limits, frozenset({EOS})), Threaded(), overlap=overlap)


def ask(name: str, prompt: list[int], max_tokens: int = 12) -> Request:
    return Request(
        id=name, prompt=tuple(prompt), params=SamplingParams(max_tokens=max_tokens, temperature=0)
    )


def test_the_chip_stays_in_the_caller_s_thread_and_answers_are_the_same():
    letters, ending = [ord("a"), ord("k")], [ord("x"), ord("}")]
    found = {}
    for overlap in (False, True):
        one = engine(overlap)
        found[overlap] = run_requests(one, [ask("a", letters), ask("b", ending)])
        assert one.runner.threads == {threading.get_ident()}
        assert (one.runner.asked_for_previous > 0) == overlap
        assert found[overlap][1].finish is FinishReason.STOP
        assert run_requests(one, [ask("c", letters)])[0].token_ids == found[overlap][0].token_ids
    assert found[True] == found[False]


def test_a_failed_step_ends_its_requests_alone():
    one = engine()
    bad, good = run_requests(one, [ask("bad", [FAIL]), ask("good", [ord("a")])])
    assert (bad.finish, good.finish) == (FinishReason.ERROR, FinishReason.ERROR), "one step"
    assert "scripted failure" in bad.error
    again = run_requests(one, [ask("again", [ord("a")])])[0]
    assert (again.finish, len(again.token_ids)) == (FinishReason.LENGTH, 12)
    assert one.scheduler.check() == []


def test_a_fatal_error_and_a_bug_reach_who_serves():
    with pytest.raises(ChipError, match="scripted failure"):
        run_requests(engine(), [ask("a", [FATAL])])

    def broken() -> None:
        raise ZeroDivisionError("a bug in the loop")

    usual = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError, match="a bug in the loop"):
        engine().serve(broken)
    assert sys.getswitchinterval() == usual
    assert threading.active_count() == 1 or all(
        thread.name != "engine-loop" for thread in threading.enumerate()
    )


class Interrupted(ScriptedRunner):
    def run(self, plan: StepPlan) -> StepResult:
        raise KeyboardInterrupt


def test_an_interrupt_of_the_chip_s_thread_leaves_no_loop_waiting():
    one = engine()
    one.runner = Interrupted(0.0)
    one._steps._runner = one.runner
    with pytest.raises(KeyboardInterrupt):
        run_requests(one, [ask("a", [ord("a")])])
    assert all(thread.name != "engine-loop" for thread in threading.enumerate())
