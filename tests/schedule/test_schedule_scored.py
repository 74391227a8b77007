"""Prompts whose probabilities are wanted: chunks, cache, retraction, and who comes behind."""

from __future__ import annotations

import pytest
from table_model import Session, ask, limits

from anychip.schedule.scheduler import RequestRefused, SchedulerHooks

PROMPT = [n % 7 for n in range(20)]
MODES = pytest.mark.parametrize("mode", ["", "eager", "lazy"])


def scored(session: Session) -> list[list[int]]:
    """How many tokens each step scores, by row."""
    return [[len(r.score.tokens) if r.score else 0 for r in p.rows] for p in session.plans]


def run(session: Session, *requests) -> Session:
    for request in requests:
        session.add(request)
    session.drain()
    for request in requests:
        session.assert_right(request.id)
    session.assert_nothing_held()
    return session


def test_a_whole_prompt_in_one_step():
    session = run(Session(limits(logit_rows=64)), ask("a", PROMPT, 3, prompt_logprobs=2))
    assert scored(session)[0] == [19]
    assert session.plans[0].rows[0].logit_rows == 20


@MODES
@pytest.mark.parametrize("rows", [0, 8, 9, 13])
def test_chunks_are_as_long_as_there_are_logit_rows(rows, mode):
    """8 rows may sample; at least one token is scored a step."""
    session = Session(limits(logit_rows=rows), overlap=mode)
    run(session, ask("a", PROMPT, 3, prompt_logprobs=0))
    told = [count for step in scored(session) for count in step if count]
    assert sum(told) == 19 and max(told) == max(1, rows - 8)


def test_what_is_not_scored_is_computed_at_once():
    request = ask("a", PROMPT, 3, prompt_logprobs=0, prompt_logprobs_from=17)
    session = run(Session(limits()), request)
    assert [len(plan.rows[0].tokens) for plan in session.plans[:4]] == [17, 1, 1, 1]
    assert scored(session)[:4] == [[1], [1], [1], [0]]


def test_from_beyond_the_prompt_nothing_is_scored():
    run(Session(limits()), ask("a", PROMPT, 3, prompt_logprobs=0, prompt_logprobs_from=20))


def test_from_the_first_token_is_refused():
    with pytest.raises(RequestRefused, match="follows on nothing, so ask from 1 on"):
        Session(limits()).add(ask("a", PROMPT, prompt_logprobs=0, prompt_logprobs_from=0))


@pytest.mark.parametrize(("start", "cached"), [(1, 0), (4, 0), (5, 4), (9, 8), (18, 16)])
def test_the_cache_gives_what_is_not_scored(start, cached):
    session = run(Session(limits(logit_rows=64)), ask("a", PROMPT, 1))
    request = ask("b", PROMPT, 1, prompt_logprobs=1, prompt_logprobs_from=start)
    run(session, request)
    assert session.last["b"].cached_tokens == cached
    assert [step for step in scored(session) if sum(step)] == [[20 - start]]


@MODES
def test_who_shares_the_prompt_finds_what_a_scored_one_computed(mode):
    prompt = [n % 9 for n in range(60)]
    session = Session(limits(logit_rows=24), overlap=mode)
    run(session, ask("a", prompt, 4, prompt_logprobs=0))
    run(session, ask("b", [*prompt, 1], 4), ask("c", prompt, 4, prompt_logprobs=2))
    assert session.last["b"].cached_tokens >= 32
    assert session.last["c"].cached_tokens == 0


@MODES
def test_nobody_waits_for_a_prompt_that_is_scored(mode):
    """Few of its tokens share a step: computing them again is sooner done."""
    prompt = [n % 9 for n in range(60)]
    session = Session(limits(logit_rows=10), overlap=mode)
    run(session, ask("a", prompt, 4, prompt_logprobs=0), ask("b", [*prompt, 1], 4))
    steps = [{row.slot for row in plan.rows} for plan in session.plans]
    assert steps[0] == {0, 1} and {0} in steps  # b comes at once, and a goes on when b is over


def test_several_share_the_logit_rows():
    session = Session(limits(logit_rows=14))
    names = ("a", "b", "c")
    run(session, *(ask(n, [i, *PROMPT], 3, prompt_logprobs=i) for i, n in enumerate(names)))
    assert max(map(sum, scored(session))) == 6


@MODES
@pytest.mark.parametrize("every", [1, 2, 3])
def test_forced_retraction_tells_nothing_twice(every, mode):
    hooks = SchedulerHooks(force_retract_every=every)
    session = Session(limits(logit_rows=11), overlap=mode, hooks=hooks)
    wishes = ({"prompt_logprobs": 1}, {"prompt_logprobs": 0, "logprobs": 2}, {"logprobs": 0})
    run(session, *(ask(f"r{n}", [n, *PROMPT], 9, **wish) for n, wish in enumerate(wishes)))
    assert session.scheduler.stats().retractions > 0


@MODES
def test_retraction_in_the_middle_of_scoring(mode):
    """Pages for one: those that decode take them, and the scored prompt gives way."""
    small = limits(pages=9, logit_rows=9, max_running=4)
    session = Session(small, overlap=mode, headroom_tokens=1, conservativeness=0.05)
    requests = [ask("a", PROMPT[:6], 18), ask("b", [1, *PROMPT[:14]], 3, prompt_logprobs=0)]
    run(session, *requests, ask("c", [2, 2], 20))
    assert session.scheduler.stats().retractions > 0


def test_an_abort_in_the_middle_tells_no_more():
    session = Session(limits())
    session.add(ask("a", PROMPT, 3, prompt_logprobs=0))
    for _ in range(3):
        session.step()
    told = list(session.scores["a"])
    assert len(told) == 3
    plan = session.plan()
    session.scheduler.abort("a")
    session.commit(plan)
    assert session.scores["a"] == told and not session.tokens["a"]
    session.assert_nothing_held()
