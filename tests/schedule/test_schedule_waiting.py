"""What requests wait for, and when they were admitted."""

from __future__ import annotations

from table_model import Session, ask, limits

from anychip.plan import StepResult
from anychip.schedule.scheduler import Scheduler


def waiting(session):
    return {reason: n for reason, n in session.scheduler.waiting().items() if n}


def test_who_has_no_slot_waits_for_one():
    session = Session(limits(max_running=1))
    session.add(ask("a", [1, 2], 9))
    session.add(ask("b", [3, 4], 9))
    session.step()
    assert waiting(session) == {"slots": 1}
    session.step()
    assert waiting(session) == {"slots": 1}


def test_who_does_not_fit_waits_for_pages():
    session = Session(limits(pages=8, page_size=4))
    session.add(ask("a", [1] * 20, 9))
    session.step()
    session.add(ask("b", [2] * 20, 9))
    session.add(ask("c", [3] * 20, 9))
    session.step()
    assert waiting(session) == {"pages": 2}


def test_behind_a_long_prompt_one_waits_for_a_share_of_the_step():
    session = Session(limits(step_tokens=8, chunk=8, pages=64))
    session.add(ask("a", [1] * 30, 2))
    session.step()
    session.add(ask("b", [2] * 5, 2))
    session.step()
    assert waiting(session) == {"tokens": 1}


def test_who_shares_a_prefix_waits_for_who_computes_it():
    session = Session(limits(step_tokens=64, chunk=16, pages=64))
    session.add(ask("a", list(range(1, 101)), 2))
    session.step()
    session.add(ask("b", [*range(1, 101), 46], 2))
    session.step()
    assert waiting(session) == {"prefix": 1}
    session.drain()
    assert waiting(session) == {}


def test_outputs_tell_when_their_request_was_admitted():
    now = [3.0]
    scheduler = Scheduler(limits(max_running=1), frozenset(), clock=lambda: now[0])
    for name in "ab":
        scheduler.add(ask(name, [1, 2], 2))
    scheduler.abort("b")
    (left,) = scheduler.take_outputs()
    assert left.admitted_at == 0.0  # it never was
    found = []
    for now[0] in (4.0, 5.0):
        plan = scheduler.plan()
        found += scheduler.commit(plan, StepResult(tokens=(7,)))
        assert scheduler.tokens_in_flight() == (2 if now[0] == 4.0 else 0)
    assert [output.admitted_at for output in found] == [4.0, 4.0]
