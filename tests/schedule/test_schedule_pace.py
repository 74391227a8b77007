"""A long prefill shares its steps with those that decode, by what steps cost."""

from __future__ import annotations

from statistics import mean, median

import pytest
from table_model import Session, ask, limits

from anychip.schedule.pace import MEASURE_EVERY, Pace

ALONE_S = 0.010
PER_ROW_S = 0.000_1
PER_TOKEN_S = 0.000_2


class Timed(Session):
    """Steps whose time follows from what they compute, and a clock that they move."""

    now = 0.0

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, clock=lambda: self.now, **options)

    def commit(self, plan):
        rows = [len(row.tokens) for row in plan.rows]
        decoding = rows.count(1)
        self.seconds = ALONE_S + decoding * PER_ROW_S + (sum(rows) - decoding) * PER_TOKEN_S
        self.now += self.seconds
        self.take(self.scheduler.commit(plan, self.runner.run(plan), self.seconds))
        assert self.scheduler.check() == []


def streams(count: int, **options: object) -> Timed:
    session = Timed(
        limits(pages=3000, context_length=4500, max_running=64, step_tokens=2048, chunk=2048),
        **options,
    )
    for number in range(count):
        session.add(ask(f"stream{number}", [number + 1, 2, 3], 400))
    for _ in range(40):  # longer than a burst takes
        session.step()
    return session


def gaps_while(session: Timed, name: str) -> list[float]:
    """Seconds of each step until the request has its first token."""
    found = []
    while not session.tokens[name]:
        before = {n: len(t) for n, t in session.tokens.items() if n != name}
        assert session.step()
        assert all(len(session.tokens[n]) == count + 1 for n, count in before.items())
        found.append(session.seconds)
    return found


def test_no_gap_more_than_doubles_while_a_long_prompt_arrives():
    session = streams(12)
    alone = session.seconds
    session.add(ask("long", [1 + n % 40 for n in range(4000)], 4))
    gaps = gaps_while(session, "long")
    assert median(gaps) <= 2 * alone
    assert max(gaps) <= 3.5 * alone, "a mixed step is longer, those between are not"
    assert 1.3 * alone < mean(gaps) <= 2 * alone, "and the room there is is used"
    session.drain()
    session.assert_right("long")


def test_without_pacing_the_gap_is_forty_times_as_long():
    """What the test above would see: the same session, its times not told."""
    session = streams(12)
    session.scheduler._pace = Pace(None)  # has measured nothing
    alone = session.seconds
    session.add(ask("long", [1 + n % 40 for n in range(4000)], 4))
    session.step()
    assert session.seconds > 20 * alone


@pytest.mark.parametrize("target_ms", [15, 30, 60])
def test_the_chunk_follows_a_target(target_ms):
    session = streams(12, target_tpot_s=target_ms / 1000)
    session.add(ask("long", [1 + n % 40 for n in range(4000)], 4))
    gaps = gaps_while(session, "long")
    # What was saved before is spent on top of it.
    assert 0.6 * target_ms <= 1000 * mean(gaps) <= 1.25 * target_ms


def test_an_unreachable_target_still_lets_prefill_go_on():
    session = streams(4, target_tpot_s=0.001)
    alone = session.seconds
    session.add(ask("long", [1 + n % 40 for n in range(600)], 4))
    gaps = gaps_while(session, "long")
    assert len(gaps) > 100
    assert mean(gaps) <= 1.15 * alone


def test_many_that_wait_weigh_more_than_one_that_decodes():
    pace = Pace(None)
    for _ in range(40):
        pace.measured(1, 0, 0.010)
    pace.measured(1, 100, 0.030)
    alone = pace.prefill_tokens(1, 1)
    assert pace.prefill_tokens(1, 32) == 0, "so much was not saved yet"
    pace.measured(1, 0, 0.010)
    crowd = pace.prefill_tokens(1, 32)
    assert alone is not None and crowd is not None
    assert crowd >= 8 * alone


def test_nothing_measured_limits_nothing_and_decoding_alone_is_measured_anew():
    pace = Pace(1.0)
    assert pace.prefill_tokens(3, 1) is None
    assert pace.prefill_tokens(0, 1) is None
    pace.measured(0, 100, 0.02)
    assert pace.prefill_tokens(3, 1) == 0, "first it has to know what decoding alone takes"
    pace.measured(3, 0, 0.01)
    for _ in range(MEASURE_EVERY):
        assert pace.prefill_tokens(3, 1)
        pace.measured(3, 40, 0.018)
    assert pace.prefill_tokens(3, 1) == 0
    pace.measured(3, 0, 0.01)
    assert pace.prefill_tokens(3, 1)


def test_one_slow_step_changes_little():
    pace = Pace(1.0)
    for _ in range(5):
        pace.measured(3, 0, 0.01)
        pace.measured(3, 32, 0.018)
    before = pace.prefill_tokens(3, 1)
    pace.measured(3, 32, 1.5)
    pace.measured(3, 0, 1.5)
    assert before
    assert pace.prefill_tokens(3, 1) == before


def test_a_short_prompt_takes_few_steps_from_what_was_saved():
    session = streams(12)
    alone = session.seconds
    session.add(ask("short", [1 + n % 40 for n in range(300)], 4))
    gaps = gaps_while(session, "short")
    assert max(gaps) <= 3.5 * alone
    assert len(gaps) <= 7


def test_requests_that_came_together_are_not_paced_among_each_other():
    session = Timed(limits(pages=3000, context_length=600, max_running=64, step_tokens=256))
    for number in range(20):
        session.add(ask(f"r{number}", [number + 1, *([7] * 200)], 100))
    steps = 0
    while len(session.tokens) < 20:
        assert session.step()
        steps += 1
    assert steps <= 1 + 20 * 201 // (256 - 20), "every step was full"
    for _ in range(30):  # longer than a burst takes
        session.step()
    session.add(ask("later", [5] * 400, 2))
    alone = session.seconds
    session.step()
    assert session.seconds <= 3.5 * alone


def test_a_burst_that_takes_a_while_to_come_is_not_held_back_by_its_first():
    session = Timed(limits(pages=3000, context_length=600, max_running=64, step_tokens=256))
    session.add(ask("first", [1, *([7] * 60)], 100))
    for _ in range(10):
        session.step()
    for number in range(10):
        session.add(ask(f"r{number}", [number + 2, *([7] * 200)], 100))
    steps = 0
    while len(session.tokens) < 11:
        assert session.step()
        steps += 1
    assert steps <= 2 + 10 * 201 // (256 - 11), "every step was full"


def test_who_ends_soon_is_no_beginner_any_more():
    session = Timed(limits(max_running=64))
    session.add(ask("a", [1, 2, 3], 30))
    session.add(ask("b", [4, 5, 6], 3))
    for _ in range(2):
        session.step()
    state = session.scheduler._state
    assert list(state.beginners) == ["a", "b"]
    for _ in range(3):
        session.step()
    assert list(state.beginners) == ["a"]
    for _ in range(24):
        session.step()
    assert not state.beginners
    assert state.by_id["a"].decodes_since == 2


def test_a_surplus_row_is_no_prefill():
    """With overlap, a request that turns out to end has one row too many in the next step."""
    session = Timed(limits(), overlap="eager")
    seen: list[tuple[int, int]] = []
    session.scheduler._pace.measured = lambda decoding, prefill, _: seen.append((decoding, prefill))
    session.land = lambda plan, result: session.take(session.scheduler.commit(plan, result, 0.01))
    session.add(ask("a", [1, 2, 3], 30))
    session.add(ask("b", [4, 5, 6], 30))
    for _ in range(4):
        session.step()
    assert session.scheduler.abort("b")
    for _ in range(4):
        session.step()
    assert seen[0] == (0, 6)
    assert all(prefill == 0 for _, prefill in seen[1:])
