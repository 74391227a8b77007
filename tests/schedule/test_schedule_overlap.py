"""A step planned behind the one in flight: nothing is lost, doubled or held up by it.

That answers are the same is tested with random events in test_schedule_answers.py.
"""

from __future__ import annotations

import pytest
from table_model import EOS, Session, ask, digest, limits, next_token

from anychip.plan import PREV
from anychip.request import FinishReason
from anychip.schedule.scheduler import SchedulerHooks

MODES = pytest.mark.parametrize("mode", ["eager", "lazy"])


def ending_soon() -> list[int]:
    """A prompt whose third greedy token is the end."""
    for first in range(1, 50):
        for second in range(1, 50):
            tokens = [first, second, 3]
            answer = []
            for _ in range(3):
                answer.append(next_token(digest([*tokens, *answer]), 0.0))
            if answer[2] == EOS and EOS not in answer[:2]:
                return tokens
    raise AssertionError("the table model has no such prompt")


class Watched(Session):
    """Keeps what was launched."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.launched: list[object] = []

    def launch(self, plan):
        super().launch(plan)
        if plan is not None:
            self.launched.append(plan)


@MODES
def test_every_decode_is_planned_while_the_step_before_runs(mode):
    session = Watched(limits(), overlap=mode)
    session.add(ask("a", [1, 2, 3], 20))
    session.drain()
    session.assert_right("a")
    tokens = [row.tokens for plan in session.launched for row in plan.rows]
    assert tokens == [(1, 2, 3), *[(PREV,)] * 19], "the length is known: no surplus row"


@MODES
def test_an_end_that_nobody_could_know_costs_one_surplus_row(mode):
    session = Watched(limits(), overlap=mode)
    session.add(ask("a", ending_soon(), 20, ignore_eos=False))
    session.drain()
    session.assert_right("a")
    assert session.finish("a") is FinishReason.STOP
    assert len(session.tokens["a"]) == 3
    assert session.scheduler.stats().generated_tokens == 3
    assert len(session.launched) == 4
    session.assert_nothing_held()


@MODES
def test_an_abort_takes_effect_with_the_step_in_flight(mode):
    session = Session(limits(), overlap=mode)
    session.add(ask("a", [1, 2, 3], 50))
    session.add(ask("b", [4, 5, 6], 50))
    for _ in range(4):
        session.step()
    assert session.scheduler.abort("a")
    before = list(session.tokens["a"])
    session.step()
    assert session.finish("a") is FinishReason.ABORT
    assert session.tokens["a"] == before
    session.drain()
    session.assert_right("b")
    session.assert_nothing_held()


@MODES
def test_a_higher_priority_does_not_wait_for_a_pause(mode):
    session = Session(limits(max_running=1), overlap=mode, policy="priority")
    session.add(ask("low", [1, 2, 3], 60))
    for _ in range(4):
        session.step()
    session.add(ask("urgent", [4, 5], 4, priority=10))
    for _ in range(3):
        session.step()
    assert session.tokens["urgent"]
    session.drain()
    session.assert_right("low")
    session.assert_right("urgent")


@MODES
def test_a_forced_retraction_still_comes(mode):
    session = Session(limits(), overlap=mode, hooks=SchedulerHooks(force_retract_every=5))
    session.add(ask("a", [1, 2, 3], 40))
    session.drain()
    session.assert_right("a")
    assert session.last["a"].retractions > 3


@MODES
def test_a_time_out_still_comes(mode):
    now = [0.0]
    session = Session(limits(), overlap=mode, clock=lambda: now[0], running_timeout_s=5.0)
    session.add(ask("a", [1, 2, 3], 60))
    for _ in range(4):
        session.step()
    now[0] = 6.0
    for _ in range(2):
        session.step()
    assert session.finish("a") is FinishReason.ERROR
    session.drain()
    session.assert_nothing_held()


@MODES
def test_a_failed_step_ends_its_requests_and_the_one_behind_it_lands(mode):
    session = Session(limits(chunk=4, step_tokens=6), overlap=mode)
    session.add(ask("a", [1, 2, 3], 30))
    session.step()
    session.step()
    session.take_off(ahead=False)
    session.add(ask("b", [7, 8, 9], 6))
    session.take_off(ahead=True)
    assert len(session.flights) == 2
    assert session.fail(*session.flights.popleft()) == {"a"}
    session.drain()
    assert session.finish("a") is FinishReason.ERROR
    session.assert_right("b")
    session.assert_nothing_held()


@MODES
def test_the_cache_can_be_flushed_while_a_surplus_row_runs(mode):
    session = Session(limits(), overlap=mode)
    session.add(ask("a", ending_soon(), 20, ignore_eos=False))
    while session.last.get("a") is None or session.finish("a") is None:
        session.step()
    assert session.flights, "the surplus row is in flight"
    assert session.scheduler.flush_cache()
    session.add(ask("b", [5, 6, 7], 10))
    session.drain()
    session.assert_right("b")


def test_one_step_has_to_be_in_flight():
    session = Session(limits())
    with pytest.raises(RuntimeError, match="0 steps are in flight; one has to be"):
        session.scheduler.plan_ahead()
    session.add(ask("a", [1, 2, 3], 5))
    first = session.scheduler.plan()
    assert session.scheduler.plan_ahead() is not None
    with pytest.raises(RuntimeError, match="2 steps are in flight"):
        session.scheduler.plan_ahead()
    with pytest.raises(RuntimeError, match="step 1 is in flight; commit it first"):
        session.scheduler.plan()
    assert first is not None
