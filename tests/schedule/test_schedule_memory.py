"""When memory is short: who waits, who is retracted, who ends with an error, and that all end."""

from __future__ import annotations

import pytest
from table_model import Session, ask, limits

from anychip.request import FinishReason
from anychip.schedule.scheduler import SchedulerHooks


def test_a_retracted_request_repeats_no_token_and_keeps_its_noise():
    session = Session(limits(), hooks=SchedulerHooks(force_retract_every=2))
    session.add(ask("a", [1, 2, 3], 12, temperature=1.0, seed=4))
    session.drain()
    session.assert_right("a")
    assert session.last["a"].retractions > 3
    assert session.scheduler.stats().retractions == session.last["a"].retractions


def test_the_request_that_loses_least_is_retracted_and_comes_first_again():
    session = Session(limits(pages=30, page_size=4, max_running=3), radix=False)
    session.add(ask("long", [1] * 16, 60))
    session.add(ask("short", [2] * 2, 60))
    session.add(ask("late", [3] * 2, 60))
    while session.scheduler.stats().retractions == 0:
        assert session.step()
    session.add(ask("new", [4], 2))
    session.drain()
    assert session.last["late"].retractions > 0
    assert session.last["long"].retractions == 0
    for name in session.requests:
        session.assert_right(name)


def test_of_equals_the_latest_is_retracted():
    session = Session(limits(pages=80, page_size=1, max_running=2), radix=False)
    session.add(ask("first", [1, 2], 60))
    session.add(ask("second", [3, 4], 60))
    session.drain()
    assert session.last["second"].retractions > 0
    assert session.last["first"].retractions == 0
    session.assert_right("second")


def test_the_last_one_that_cannot_fit_ends_with_an_error_and_the_server_goes_on():
    session = Session(limits(pages=5, page_size=4))
    session.add(ask("big", [1] * 10, 50))
    session.add(ask("small", [2] * 3, 5))
    session.drain()
    last = session.last["big"]
    assert last.finish is FinishReason.ERROR
    assert "21 tokens (10 of prompt, 11 produced) need 6 pages of 4" in last.error
    assert len(session.tokens["big"]) == 11
    session.assert_right("small")
    session.assert_nothing_held()


def test_a_prompt_that_fills_the_cache_gives_the_tokens_that_fit():
    session = Session(limits(pages=5, page_size=4))
    session.add(ask("one", [1] * 20, 1))
    session.add(ask("two", [1] * 20, 2))
    session.drain()
    session.assert_right("one")
    assert session.finish("two") is FinishReason.ERROR
    assert len(session.tokens["two"]) == 1


@pytest.mark.parametrize("radix", [True, False])
def test_two_long_prompts_do_not_starve_each_other(radix):
    session = Session(
        limits(pages=12, page_size=4, step_tokens=8, chunk=4, max_running=4), radix=radix
    )
    session.add(ask("a", [1] * 40, 4))
    session.add(ask("b", [2] * 40, 4))
    session.drain(most_steps=200)
    session.assert_right("a")
    session.assert_right("b")


@pytest.mark.parametrize("radix", [True, False])
def test_prefills_that_hold_all_memory_and_wait_for_each_other_are_untied(radix, monkeypatch):
    """Admission prevents this; with its rule switched off the planner has to get out of it."""
    monkeypatch.setattr("anychip.schedule.admission.fits", lambda *_: True)
    session = Session(
        limits(pages=12, page_size=4, step_tokens=8, chunk=4, max_running=4), radix=radix
    )
    session.add(ask("a", [1] * 40, 4))
    session.add(ask("b", [2] * 40, 4))
    session.drain(most_steps=500)
    session.assert_right("a")
    session.assert_right("b")
    assert session.scheduler.stats().retractions > 0


def test_a_prefill_without_a_page_waits_while_others_decode():
    session = Session(limits(pages=16, page_size=4, step_tokens=8, chunk=8), radix=False)
    session.add(ask("a", [1] * 4, 40))
    session.step()
    session.add(ask("b", [2] * 36, 4))
    session.drain()
    session.assert_right("a")
    session.assert_right("b")
    assert session.last["b"].retractions == 0


def test_admission_does_not_cause_a_retraction_at_once():
    session = Session(limits(pages=40, page_size=1, max_running=8), radix=False)
    for number in range(8):
        session.add(ask(str(number), [number + 1] * 4, 8))
    session.drain()
    assert session.scheduler.stats().retractions == 0


def test_a_blocked_head_starts_when_memory_comes_back():
    session = Session(limits(pages=10, page_size=4, max_running=4))
    session.add(ask("a", [1] * 20, 12))
    session.step()
    session.add(ask("b", [2] * 24, 4))
    for _ in range(4):
        session.step()
    assert session.scheduler.stats().queued == 1
    session.scheduler.abort("a")
    session.step()
    assert session.tokens["b"]


def test_nobody_overtakes_a_blocked_head():
    session = Session(limits(pages=10, page_size=4, max_running=4))
    session.add(ask("a", [1] * 20, 12))
    session.step()
    session.add(ask("b", [2] * 24, 4))
    session.add(ask("c", [3], 1))
    session.step()
    assert session.scheduler.stats().queued == 2
    session.drain()


def test_more_running_requests_than_budget_do_not_starve_a_prefill():
    session = Session(limits(step_tokens=2, chunk=2, max_running=8))
    for number in range(5):
        session.add(ask(str(number), [number + 1] * 5, 30))
    session.drain()
    for name in session.requests:
        session.assert_right(name)


def test_only_pages_in_need_are_evicted():
    session = Session(limits(pages=16, page_size=4))
    session.add(ask("a", [1] * 40, 1))
    session.drain()
    assert session.scheduler.stats().pages_cached == 10
    session.add(ask("b", [2] * 32, 1))
    session.drain()
    assert session.scheduler.stats().evicted_pages == 2
    session.add(ask("c", [1] * 40, 1))
    session.drain()
    assert session.last["c"].cached_tokens == 32
    session.assert_right("c")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda s: s.store.allocator.take(1), "is in 0 places"),
        (lambda s: s.running()[0].pages.append(1), "places"),
        (lambda s: s.store.tree.lock(s.running()[0].node), "locks in the tree"),
        (lambda s: s.tables[s.running()[0].slot].reverse(), "another page table"),
        (lambda s: s.free_slots.pop(), "a slot is lost"),
        (lambda s: s.running()[0].tokens.__setitem__(0, 99), "other tokens"),
        (lambda s: setattr(s.store.tree, "evictable", 77), "it counts 77"),
        (lambda s: s.by_id.clear(), "requests by id"),
    ],
)
def test_check_finds_what_is_wrong(spoil, text):
    session = Session(limits())
    session.add(ask("a", [1] * 20, 8))
    session.step()
    session.step()
    spoil(session.scheduler._state)
    found = session.scheduler.check()
    assert any(text in sentence for sentence in found)
    assert session.scheduler.stats().check_violations == len(found)
