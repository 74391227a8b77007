"""When calls are sent, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from virtual_time import ScriptedSender, run_virtually

from anychip.bench.load.calls import Call, LoadError
from anychip.bench.load.loops import closed_loop, open_loop, repeated

CALLS = [Call(id=str(n), at_s=at, max_tokens=1) for n, at in enumerate((0.0, 1.0, 1.0, 4.0))]


def test_an_open_loop_sends_by_the_clock_and_waits_for_no_answer():
    run = run_virtually(open_loop(CALLS, ScriptedSender(100.0)))
    assert run.loop == "open" and run.concurrency is None and not run.interrupted
    assert [answer.sent_s for answer in run.answers] == pytest.approx([0, 1, 1, 4])
    assert [answer.scheduled_s for answer in run.answers] == [0, 1, 1, 4]
    assert run.seconds == pytest.approx(104)


def test_a_speed_divides_the_time_between_calls_and_orders_them():
    run = run_virtually(open_loop(CALLS[::-1], ScriptedSender(1.0), speed=2))
    assert [answer.sent_s for answer in run.answers] == pytest.approx([0, 0.5, 0.5, 2])
    assert run.speed == 2


def test_a_call_that_is_sent_late_says_so():
    async def late(seconds: float) -> None:
        await asyncio.sleep(seconds + 0.25)

    run = run_virtually(open_loop(CALLS[:2], ScriptedSender(1.0), sleep=late))
    assert [answer.lateness_s for answer in run.answers] == pytest.approx([0, 0.25])


def test_a_closed_loop_never_has_more_under_way_than_callers():
    running, most = 0, 0

    class Counting(ScriptedSender):
        async def send(self, call, start, scheduled_s):
            nonlocal running, most
            running += 1
            most = max(most, running)
            answer = await super().send(call, start, scheduled_s)
            running -= 1
            return answer

    told = []
    load = closed_loop(CALLS * 3, Counting(2.0), concurrency=3, told=told.append)
    run = run_virtually(load)
    assert run.loop == "closed" and run.concurrency == most == 3
    assert len(run.answers) == len(told) == 12
    assert run.seconds == pytest.approx(8)


def test_a_closed_loop_ends_after_its_time_though_calls_are_without_end():
    load = closed_loop(repeated(CALLS[:2]), ScriptedSender(2.0), concurrency=1, seconds=5.0)
    run = run_virtually(load)
    assert [answer.id for answer in run.answers] == ["0", "1", "0-1"]
    assert not run.interrupted


@pytest.mark.parametrize("closed", [False, True])
def test_a_load_that_is_interrupted_keeps_the_answers_so_far(closed):
    sender = ScriptedSender(1.5)

    async def interrupted():
        load = closed_loop(CALLS, sender, concurrency=1) if closed else open_loop(CALLS, sender)
        task = asyncio.ensure_future(load)
        await asyncio.sleep(2.0)
        task.cancel()
        return await task

    run = run_virtually(interrupted())
    assert run.interrupted and run.unanswered == (1 if closed else 2)
    assert [answer.id for answer in run.answers] == ["0"]


def test_a_bug_in_the_client_is_no_answer():
    class Broken(ScriptedSender):
        async def send(self, call, start, scheduled_s):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_virtually(open_loop(CALLS, Broken(1.0)))


def test_a_speed_and_a_concurrency_that_cannot_be_are_refused():
    with pytest.raises(LoadError, match="the speed is 0; it must be a number above 0"):
        run_virtually(open_loop(CALLS, ScriptedSender(1.0), speed=0))
    with pytest.raises(LoadError, match="the concurrency is 0; it must be at least 1"):
        run_virtually(closed_loop(CALLS, ScriptedSender(1.0), concurrency=0))
