"""Who of those that wait starts next, and that nobody waits for ever."""

from __future__ import annotations

import pytest
from table_model import EOS, Session, ask, limits

from anychip.request import FinishReason
from anychip.schedule.policy import LONGEST_SORTED, MOST_OVERTAKEN
from anychip.schedule.scheduler import RequestRefused, Scheduler, SchedulerOptions

COMMON = list(range(1, 41))


def started(session: Session) -> list[str]:
    """In which order requests got their first token."""
    order: list[str] = []
    for _ in range(2000):
        if not session.step():
            return order
        order += [name for name in session.tokens if session.tokens[name] and name not in order]
    raise AssertionError("it does not end")


def one_at_a_time(policy: str, **options: object) -> Session:
    """A session whose only slot is taken by a request that runs for some steps."""
    session = Session(limits(max_running=1), policy=policy, **options)
    session.add(ask("first", COMMON, 3))
    session.step()
    return session


def test_fcfs_keeps_the_order_of_arrival():
    session = one_at_a_time("fcfs")
    for name, prompt in (("b", [7] * 30), ("c", [8]), ("d", [*COMMON, 9])):
        session.add(ask(name, prompt, 2))
    assert started(session) == ["first", "b", "c", "d"]


def test_lpm_takes_the_longest_cached_prefix_first():
    session = one_at_a_time("lpm")
    session.add(ask("nothing", [7] * 30, 2))
    session.add(ask("half", [*COMMON[:20], *[9] * 20], 2))
    session.add(ask("all", [*COMMON, 9], 2))
    session.add(ask("elsewhere", [*COMMON, 9], 2, namespace="another"))
    assert started(session) == ["first", "all", "half", "nothing", "elsewhere"]


def test_shortest_prefill_counts_what_is_not_cached():
    session = one_at_a_time("shortest-prefill-first")
    session.add(ask("long", [7] * 30, 2))
    session.add(ask("cached", [*COMMON, 9, 9], 2))  # 41 tokens, 40 of them are cached
    session.add(ask("short", [8] * 5, 2))
    assert started(session) == ["first", "cached", "short", "long"]


def test_priority_then_arrival():
    session = one_at_a_time("priority")
    for name, priority in (("low", -1), ("a", 5), ("none", 0), ("b", 5)):
        session.add(ask(name, [7, 8], 2, priority=priority))
    assert started(session) == ["first", "a", "b", "none", "low"]


@pytest.mark.parametrize("policy", ["lpm", "shortest-prefill-first"])
def test_one_that_all_others_overtake_goes_first_in_the_end(policy):
    session = one_at_a_time(policy)
    session.add(ask("unlucky", [7] * 60, 2))
    finished = 0
    while "unlucky" not in session.last:
        if len(session.requests) - finished < 5:
            session.add(ask(f"lucky{len(session.requests)}", [*COMMON, 9], 1))
        session.step()
        finished = sum(last.finish is not None for last in session.last.values())
        assert finished < 2 * MOST_OVERTAKEN
    assert finished >= MOST_OVERTAKEN, "it was not overtaken at all"


def test_the_tree_is_asked_for_the_oldest_alone():
    session = one_at_a_time("lpm")
    for number in range(LONGEST_SORTED):
        session.add(ask(f"plain{number}", [7, 8, 9], 1))
    session.add(ask("cached", [*COMMON, 9], 1))
    order = started(session)
    assert order.index("cached") > order.index(f"plain{0}")


def test_equal_prompts_wait_for_the_first_and_others_pass_them():
    session = Session(limits(chunk=16, step_tokens=24, page_size=4, context_length=256))
    prompt = [1 + n % 40 for n in range(100)]
    for name in ("one", "two", "three"):
        session.add(ask(name, prompt, 4))
    session.add(ask("other", [5, 6, 7], 4))
    plan = session.plan()
    assert [len(row.tokens) for row in plan.rows] == [16, 3], "one and other, nobody twice"
    session.commit(plan)
    session.drain()
    assert [session.last[n].cached_tokens for n in ("one", "two", "three")] == [0, 96, 96]
    for name in session.requests:
        session.assert_right(name)


def test_a_follower_waits_no_longer_than_for_what_both_share():
    session = Session(limits(chunk=8, step_tokens=32, page_size=4, context_length=512, pages=200))
    shared = [1 + n % 40 for n in range(64)]
    session.add(ask("long", [*shared, *([7] * 300)], 2))
    session.add(ask("follower", [*shared, 9, 9], 2))
    while "follower" not in session.last:
        assert session.step()
    assert session.last["follower"].cached_tokens == 64
    assert not session.tokens["long"], "it was over long before the leader's prefill"


def test_a_follower_starts_although_its_leader_is_gone():
    session = Session(limits(chunk=8, step_tokens=16, page_size=4))
    session.add(ask("leader", COMMON, 4))
    session.add(ask("follower", [*COMMON, 3], 4))
    session.step()
    assert session.scheduler.stats().queued == 1
    session.scheduler.abort("leader")
    session.drain()
    session.assert_right("follower")
    assert session.finish("leader") is FinishReason.ABORT


def test_an_unknown_policy_and_an_idle_priority_are_refused():
    with pytest.raises(ValueError, match="policy is 'best'; there is fcfs, lpm, priority"):
        Scheduler(limits(), frozenset({EOS}), SchedulerOptions(policy="best"))
    with pytest.raises(ValueError, match="retraction is 'x'; there is loss, priority"):
        Scheduler(limits(), frozenset({EOS}), SchedulerOptions(retraction="x"))
    with pytest.raises(RequestRefused, match="has priority 3, this server looks at none"):
        Session(limits()).add(ask("a", [1], priority=3))
