"""Time-outs of waiting and of running, with a clock that the test moves."""

from __future__ import annotations

import pytest
from table_model import Session, ask, limits

from anychip.request import Failure, FinishReason
from anychip.schedule.scheduler import QueueFull


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(**options: object) -> tuple[Session, Clock]:
    clock = Clock()
    return Session(limits(max_running=1), clock=clock, **options), clock


def test_one_that_waits_too_long_ends_and_the_others_go_on():
    session, clock = timed(waiting_timeout_s=5.0)
    session.add(ask("runs", [1, 2], 8))
    session.add(ask("waits", [3, 4], 8))
    session.step()
    clock.now += 3
    session.add(ask("younger", [5, 6], 8))
    clock.now += 2.5
    session.step()
    last = session.last["waits"]
    assert (last.finish, last.failure) == (FinishReason.ERROR, Failure.WAITED_TOO_LONG)
    assert last.error.startswith("waited 5.5 s for a place, the limit is 5 s (--waiting-timeout)")
    session.drain()
    session.assert_right("runs")
    session.assert_right("younger")
    assert session.scheduler.stats().timed_out == 1


def test_one_that_runs_too_long_ends_with_what_it_has_cached():
    session, clock = timed(running_timeout_s=5.0)
    prompt = [1 + n for n in range(20)]
    session.add(ask("slow", prompt, 100))
    clock.now += 60  # waiting does not count
    session.step()
    clock.now += 4
    for _ in range(6):
        session.step()
    assert session.last["slow"].finish is None
    clock.now += 2
    session.step()
    last = session.last["slow"]
    assert (last.finish, last.failure) == (FinishReason.ERROR, Failure.RAN_TOO_LONG)
    assert "7 tokens were produced" in last.error
    session.add(ask("again", [*prompt, *session.tokens["slow"], 3], 2))
    session.drain()
    session.assert_right("again")
    assert session.last["again"].cached_tokens == 24
    session.assert_nothing_held()


def test_a_retracted_one_runs_on_the_same_time():
    clock = Clock()
    session = Session(
        limits(pages=30, page_size=1, context_length=64),
        clock=clock,
        waiting_timeout_s=1.0,
        running_timeout_s=10.0,
        headroom_tokens=1,
        conservativeness=0.001,
    )
    session.add(ask("a", [1] * 5, 40))
    session.add(ask("b", [2] * 5, 40))
    while session.scheduler.stats().retractions == 0:
        assert session.step()
    clock.now += 5
    session.step()
    assert session.scheduler.stats().timed_out == 0, "it had its first slot: it does not wait"
    clock.now += 6
    session.step()
    assert session.scheduler.stats().timed_out == 2


def test_a_clock_that_goes_back_ends_nobody():
    session, clock = timed(waiting_timeout_s=5.0, running_timeout_s=5.0)
    session.add(ask("a", [1, 2], 8))
    session.add(ask("b", [3, 4], 8))
    session.step()
    clock.now -= 1e6
    session.drain()
    session.assert_right("a")
    session.assert_right("b")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_queued": 1}, "1 requests wait, the limit is 1; try later"),
        ({"max_queued_tokens": 5}, "4 tokens wait and this request has 2, the limit is 5"),
    ],
)
def test_a_full_queue_refuses_by_requests_and_by_tokens(options, text):
    session, _ = timed(**options)
    session.add(ask("runs", [1, 2], 8))
    session.step()
    session.add(ask("waits", [3, 4, 5, 6], 8))
    with pytest.raises(QueueFull, match=text):
        session.add(ask("more", [3, 4], 8))
    session.drain()
    session.add(ask("later", [1] * 20, 2))  # over the limit alone: taken, as nothing waits
    session.drain()
    session.assert_right("later")
