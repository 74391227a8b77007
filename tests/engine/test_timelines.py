"""What an engine keeps of the requests that are traced."""

from __future__ import annotations

import pytest

from anychip.engine import timelines as module
from anychip.engine.engine import Engine
from anychip.engine.timelines import Timelines
from anychip.plan import CacheLimits, Row, StepPlan
from anychip.request import Doing, FinishReason, Request, SamplingParams, StepOutput
from anychip.schedule.hooks import SchedulerHooks
from anychip.schedule.scheduler import Scheduler, SchedulerOptions
from scripted_engine import EOS, FAIL, ScriptedRunner


def engine(overlap: bool = False, retract_every: int = 0, chunk: int = 64) -> Engine:
    limits = CacheLimits(
        pages=64, page_size=4, context_length=64, max_running=4, step_tokens=chunk, chunk=chunk
    )
    options = SchedulerOptions(hooks=SchedulerHooks(force_retract_every=retract_every))
    scheduler = Scheduler(limits, frozenset({EOS}), options)
    return Engine(scheduler, ScriptedRunner(0.001), overlap=overlap)


def request(name: str, *, traced: bool = True, prompt: str = "abcd", tokens: int = 4) -> Request:
    params = SamplingParams(max_tokens=tokens, temperature=0.0)
    return Request(id=name, prompt=tuple(prompt.encode()), params=params, traced=traced)


def run(one: Engine, *requests: Request) -> dict[str, StepOutput]:
    """Last outputs by id."""
    for given in requests:
        one.submit(given)
    found = {}

    def loop() -> None:
        while len(found) < len(requests):
            found.update({o.request_id: o for o in one.step() if o.finish is not None})

    one.serve(loop)
    return found


def doings(output: StepOutput) -> list[str]:
    return [mark.doing.value for mark in output.timeline]


@pytest.mark.parametrize("overlap", [False, True])
def test_the_last_output_brings_it_and_others_bring_none(overlap):
    one = engine(overlap)
    found = run(one, request("a"), request("b", traced=False))
    marks = found["a"].timeline
    assert doings(found["a"]) == ["queue", "prefill", "decode", "decode", "decode"]
    assert [mark.tokens for mark in marks] == [0, 4, 1, 1, 1]
    assert [mark.rows for mark in marks[1:]] == [2, 2, 2, 2]
    assert [mark.step for mark in marks[1:]] == sorted({mark.step for mark in marks[1:]})
    assert all(mark.begin <= mark.end for mark in marks)
    assert found["b"].timeline == ()
    assert not one._timelines.open


def test_chunks_of_a_prompt_are_told_one_by_one():
    found = run(engine(chunk=8), request("a", prompt="abcdefgh" * 3, tokens=1))
    assert doings(found["a"]) == ["queue", "prefill", "prefill", "prefill"]


def test_a_retraction_begins_anew():
    found = run(engine(retract_every=3), request("a", tokens=4))
    told = doings(found["a"])
    again = told.index("retracted")
    assert told[again : again + 3] == ["retracted", "queue", "prefill"]


def test_ends_of_every_kind_bring_what_there_was():
    one = engine()
    one.submit(request("waits"))
    one.abort("waits")
    (left,) = one.step()
    assert (left.finish, doings(left)) == (FinishReason.ABORT, ["queue"])
    failed = run(one, request("fails", prompt=f"a{chr(FAIL)}"))["fails"]
    assert (failed.finish, doings(failed)) == (FinishReason.ERROR, ["queue"])
    assert not one._timelines.open and not one._timelines.flying


def test_a_grammar_comes_before_the_queue_and_long_answers_are_told_together(monkeypatch):
    monkeypatch.setattr(module, "MOST_MARKS", 4)
    now = iter(range(1000))
    timelines = Timelines(lambda: float(next(now)))
    timelines.begin(request("a"), compiling=True)
    timelines.compiled("a")
    for step in range(1, 8):
        first = step == 1
        row = Row(slot=2, tokens=(1, 2) if first else (1,), start=step, sample=True)
        plan = StepPlan(step=step, rows=(row,))
        timelines.planned(plan, lambda name: (2, 0))
        timelines.landed(plan, float(next(now)), float(next(now)))
    last = StepOutput(request_id="a", finish=FinishReason.STOP)
    (told,) = timelines.handed_over([last])
    assert [mark.doing for mark in told.timeline] == [
        Doing.GRAMMAR,
        Doing.QUEUE,
        Doing.PREFILL,
        Doing.DECODE,
    ]
    joined = told.timeline[-1]
    assert (joined.steps, joined.tokens, joined.step) == (6, 6, 2)
    assert joined.begin < joined.end
