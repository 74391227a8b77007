"""Admission follows the output that requests turn out to produce."""

from __future__ import annotations

from table_model import EOS, Session, ask, digest, limits, next_token

from anychip.request import FinishReason
from anychip.schedule.estimate import FIRST_SHARE, RECOVERY_STEPS, OutputEstimate


def running(session: Session) -> int:
    return session.scheduler.stats().running


def share(session: Session) -> float:
    return session.scheduler.stats().expected_output


def flood(session: Session, count: int, tokens: int, start: int = 0) -> None:
    for number in range(start, start + count):
        prompt = [1 + number % 40, 1 + number // 40 % 40, 2]
        session.add(ask(f"r{number}", prompt, tokens, ignore_eos=True))


def stopping(count: int) -> list[list[int]]:
    """Prompts whose greedy answer ends soon."""
    found = []
    for first in range(1, 3000):
        tokens = [1 + first % 49, 1 + first // 49 % 49, 1 + first // 2401]
        prompt = list(tokens)
        while len(tokens) < 6 and next_token(digest(tokens), 0.0) != EOS:
            tokens.append(next_token(digest(tokens), 0.0))
        if len(tokens) < 6:
            found.append(prompt)
    return found[:count]


def test_requests_that_stop_early_let_more_in():
    session = Session(limits(pages=200, page_size=1, context_length=128, max_running=64))
    before = share(session)
    assert before == FIRST_SHARE
    prompts = stopping(60)
    assert len(prompts) == 60, "the table model has too few of them"
    for number, prompt in enumerate(prompts):
        session.add(ask(f"early{number}", prompt, 100, ignore_eos=False))
    session.step()
    few = running(session)
    session.drain()
    assert share(session) < 0.1
    flood(session, 60, 100)
    session.step()
    assert running(session) > few
    assert all(session.finish(f"early{n}") is FinishReason.STOP for n in range(60))


def test_requests_that_use_all_they_may_let_fewer_in():
    session = Session(limits(pages=400, page_size=1, context_length=128, max_running=64))
    flood(session, 60, 20)
    session.drain()
    assert share(session) > 0.9


def test_conservativeness_multiplies():
    for factor, expected in ((0.5, 25), (1.0, 50), (10.0, 100)):
        assert OutputEstimate(factor, 8).coming(100) == expected
    assert OutputEstimate(0.001, 8).coming(100) == 8
    assert OutputEstimate(0.001, 8).coming(3) == 3


def tokens_per_step(session: Session, prompts: list[list[int]], steps: int, name: str) -> float:
    """Serve an endless row of requests that stop early; how much comes out of a step."""
    before = session.scheduler.stats().generated_tokens
    for step in range(steps):
        while session.scheduler.stats().queued < 8:
            number = len(session.requests)
            prompt = prompts[number % len(prompts)]
            session.add(ask(f"{name}{number}", prompt, 100, ignore_eos=False))
        assert session.step(), step
    return (session.scheduler.stats().generated_tokens - before) / steps


def test_throughput_comes_back_after_retractions():
    """Retractions raise the share, it fades, and a step yields as much as before."""
    session = Session(
        limits(pages=400, page_size=1, context_length=200, max_running=32, step_tokens=64)
    )
    prompts = stopping(60)
    tokens_per_step(session, prompts, 200, "warm")
    before, low = tokens_per_step(session, prompts, 100, "before"), share(session)
    flood(session, 8, 100, start=1000)
    while session.scheduler.stats().retractions == 0:
        tokens_per_step(session, prompts, 1, "during")
    assert share(session) > low + 0.05
    tokens_per_step(session, prompts, RECOVERY_STEPS, "recovery")
    after = tokens_per_step(session, prompts, 100, "after")
    assert after >= 0.95 * before
    session.drain()
    for name in session.requests:
        session.assert_right(name)


def test_idle_forgets_the_caution():
    session = Session(limits(pages=40, page_size=1, context_length=64), headroom_tokens=1)
    session.scheduler._state.estimate._learned = 0.01
    flood(session, 4, 25)
    while session.scheduler.stats().retractions == 0:
        assert session.step()
    assert session.scheduler._state.estimate._raised > 0
    session.drain()
    assert session.scheduler._state.estimate._raised == 0
