"""A higher priority takes the place of lower ones, and no answer changes by it."""

from __future__ import annotations

import pytest
from table_model import Session, ask, limits

from anychip.request import FinishReason


def busy(**options: object) -> Session:
    """Two slots, both taken: "low" since longer than "lower", which has the least priority."""
    session = Session(limits(max_running=2), policy="priority", **options)
    session.add(ask("low", [1, 2, 3], 30, priority=1))
    session.step()
    session.add(ask("lower", [4, 5, 6], 30, priority=0))
    session.step()
    return session


def test_the_lowest_makes_way_at_once_and_goes_on_later():
    session = busy(preempt_from=10)
    session.add(ask("urgent", [7, 8], 5, priority=10))
    session.step()
    assert session.tokens["urgent"], "it started with the next step"
    assert session.last["low"].retractions == 0
    session.drain()
    assert session.last["lower"].retractions == 1
    assert session.scheduler.stats().preemptions == 1
    for name in session.requests:
        session.assert_right(name)


@pytest.mark.parametrize("options", [{"preempt_from": None}, {"preempt_from": 11}])
def test_it_waits_where_preemption_is_off_or_the_difference_too_small(options):
    session = busy(**options)
    session.add(ask("urgent", [7, 8], 5, priority=10))
    session.step()
    assert not session.tokens["urgent"]
    session.drain()
    assert session.scheduler.stats().retractions == 0


def test_as_many_make_way_as_its_memory_needs():
    session = Session(limits(pages=20, page_size=4, max_running=8), policy="priority")
    for number in range(4):
        session.add(ask(f"low{number}", [number + 1] * 8, 8))
    session.step()
    session.add(ask("urgent", [9] * 40, 8, priority=50))
    session.step()
    stats = session.scheduler.stats()
    assert 1 <= stats.preemptions < 4
    assert session.tokens["urgent"]
    session.drain()
    for name in session.requests:
        session.assert_right(name)


def test_nobody_makes_way_in_vain():
    """What keeps "big" out is "high", which no one may drive out: the others stay too."""
    session = Session(limits(pages=24, page_size=4), policy="priority")
    session.add(ask("high", [1] * 40, 30, priority=100))
    session.add(ask("low", [2] * 8, 8))
    session.step()
    assert session.scheduler.stats().running == 2
    session.add(ask("big", [3] * 60, 8, priority=50))
    session.step()
    assert session.scheduler.stats().preemptions == 0
    session.drain()
    for name in session.requests:
        session.assert_right(name)


def test_a_preempted_prefill_starts_again():
    session = Session(limits(max_running=1, chunk=8, step_tokens=8), policy="priority")
    session.add(ask("low", [1 + n for n in range(40)], 4))
    session.step()
    session.step()
    session.add(ask("urgent", [7, 8], 3, priority=10))
    session.drain()
    assert session.scheduler.stats().preemptions == 1
    session.assert_right("low")
    session.assert_right("urgent")


@pytest.mark.parametrize(("retraction", "loser"), [("loss", "short"), ("priority", "long")])
def test_who_gives_way_when_memory_runs_out(retraction, loser):
    session = Session(
        limits(pages=30, page_size=4, max_running=3),
        radix=False,
        retraction=retraction,
        headroom_tokens=1,
        conservativeness=0.001,
    )
    session.add(ask("long", [1] * 16, 60, priority=-1 if retraction == "priority" else 0))
    session.add(ask("short", [2] * 2, 60))
    session.drain()
    assert [name for name in session.last if session.last[name].retractions] == [loser]
    for name in session.requests:
        session.assert_right(name)
        assert session.finish(name) is FinishReason.LENGTH
