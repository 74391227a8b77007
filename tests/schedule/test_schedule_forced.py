"""Tokens that a grammar forces: appended, computed together, ended and paged like sampled ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from random_life import GRAMMAR
from table_model import Session, ask, expected, expected_logprobs, limits

from anychip.plan import PREV
from anychip.request import FinishReason
from anychip.schedule.planner import FORCED_BESIDE_OTHERS
from anychip.schedule.scheduler import SchedulerHooks

MODES = pytest.mark.parametrize("mode", ["", "eager", "lazy"])


def jumping(name: str, prompt: list[int], max_tokens: int = 30, **values: object):
    return ask(name, prompt, max_tokens, grammar=GRAMMAR, **values)


def lengths(session: Session) -> list[int]:
    """Tokens of each row of one request."""
    return [len(row.tokens) for plan in session.plans for row in plan.rows]


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    """One behind which the table model forces nine tokens early on."""
    for first in range(50):
        session = Session(limits())
        session.add(jumping("a", [first, 2]))
        session.drain()
        if 10 in lengths(session)[1:3]:
            return [first, 2]
    raise AssertionError("the table model forces no nine tokens")


@MODES
def test_forced_tokens_are_computed_together(prompt, mode):
    session = Session(limits(), overlap=mode)
    session.add(jumping("a", prompt))
    session.drain()
    session.assert_right("a")
    session.assert_nothing_held()
    assert len(lengths(session)) < 20
    assert all(PREV not in row.tokens for plan in session.plans for row in plan.rows)


@MODES
@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("every", [0, 2])
def test_several_at_once_whatever_the_step(prompt, mode, chunk, every):
    session = Session(
        limits(chunk=chunk, step_tokens=max(chunk, 8)),
        overlap=mode,
        hooks=SchedulerHooks(force_retract_every=every if chunk > 1 else 9 * every),
    )
    requests = [jumping(f"r{n}", [*prompt[:1], n], temperature=0.9, seed=n) for n in range(4)]
    requests += [ask("plain", [1, 2, 3], 30), jumping("again", prompt, logprobs=1)]
    for request in requests:
        session.add(request)
    session.drain()
    for request in requests:
        session.assert_right(request.id)
    assert max(lengths(session)) <= chunk
    assert (session.scheduler.stats().retractions > 0) == (every > 0)


@MODES
def test_who_wants_one_token_does_not_wait_for_many_forced_ones(prompt, mode):
    at_once = {}
    for others in (0, 1):
        session = Session(limits(chunk=64, step_tokens=64), overlap=mode)
        names = [f"r{n}" for n in range(6)] + others * ["plain"]
        for name in names:
            made = ask(name, [1, 2, 3], 60) if name == "plain" else jumping(name, prompt)
            session.add(made)
        session.drain()
        for name in names:
            session.assert_right(name)
        rows = [[len(row.tokens) for row in plan.rows] for plan in session.plans]
        at_once[others] = max(sum(n - 1 for n in step if n > 3) for step in rows)
    assert at_once[0] > FORCED_BESIDE_OTHERS >= at_once[1] > 9


@MODES
def test_forced_tokens_of_several_steps_do_not_wait_for_other_answers(prompt, mode):
    session = Session(limits(chunk=3, step_tokens=8), overlap=mode)
    session.add(ask("plain", [1, 2, 3], 100))
    session.add(jumping("a", prompt, 20))
    session.drain()
    session.assert_right("a")
    last = max(
        at for at, plan in enumerate(session.plans) if any(len(r.tokens) > 1 for r in plan.rows)
    )
    assert last < 50


@MODES
def test_an_answer_is_the_same_with_little_room(prompt, mode):
    session = Session(limits(pages=12, step_tokens=7, chunk=7), overlap=mode, headroom_tokens=1)
    for n in range(5):
        session.add(jumping(f"r{n}", [*prompt, *range(n)]))
    session.drain()
    for n in range(5):
        session.assert_right(f"r{n}")
    assert session.scheduler.stats().retractions > 0


def test_most_tokens_cut_what_is_forced(prompt):
    whole, _ = expected(jumping("a", prompt), 128)
    for most in range(1, 20):
        session = Session(limits())
        session.add(jumping("a", prompt, most))
        session.drain()
        assert session.tokens["a"] == whole[:most]
        assert session.finish("a") is FinishReason.LENGTH


def test_the_context_cuts_what_is_forced(prompt):
    whole, _ = expected(jumping("a", prompt), 128)
    for context in range(4, 20):
        session = Session(limits(context_length=context))
        session.add(jumping("a", prompt))
        session.drain()
        assert session.tokens["a"] == whole[: context - len(prompt)]


def test_a_stop_token_within_ends_the_answer_there(prompt):
    whole, _ = expected(jumping("a", prompt), 128)
    for token in set(whole[:15]):
        session = Session(limits())
        session.add(jumping("a", prompt, stop_token_ids=(token,)))
        session.drain()
        assert session.tokens["a"] == whole[: whole.index(token) + 1]
        assert session.finish("a") is FinishReason.STOP


def test_where_probabilities_are_wanted_nothing_is_forced(prompt):
    session = Session(limits(), overlap="eager")
    session.add(request := jumping("a", prompt, logprobs=1))
    session.drain()
    assert set(lengths(session)[1:]) == {1}
    assert session.logprobs["a"] == expected_logprobs(request, session.tokens["a"])


def test_without_jump_forward_steps_are_planned_ahead(prompt):
    session = Session(limits(), overlap="eager", jump_forward=False)
    session.add(jumping("a", prompt))
    session.drain()
    session.assert_right("a")
    assert lengths(session) == [2, *[1] * 29]


def test_forced_tokens_of_a_row_that_asked_for_none_are_refused():
    session = Session(limits(chunk=4))
    session.add(ask("a", list(range(10)), 3))
    plan = session.plan()
    result = replace(session.runner.run(plan), forced={0: (1, 2)})
    with pytest.raises(ValueError, match="asked for no token and got forced ones"):
        session.scheduler.commit(plan, result)
    session.commit(plan)
    session.drain()
    session.assert_right("a")


@MODES
def test_what_cannot_go_on_ends_alone(mode):
    session = Session(limits(), overlap=mode)
    for name in ("a", "b"):
        session.add(ask(name, [3, 1, len(name)], 12))
    session.step()
    session.take_off(ahead=False)
    plan, result = session.flights.popleft()
    result = result or session.runner.run(plan)
    slots = [sequence.request.id for sequence in session.scheduler._flights[0].sequences]
    result = replace(result, errors={slots.index("a"): "nothing fits"})
    session.land(plan, result)
    session.drain()
    last = session.last["a"]
    assert (last.finish, last.error) == (FinishReason.ERROR, "nothing fits")
    session.assert_right("b")
    session.assert_nothing_held()
