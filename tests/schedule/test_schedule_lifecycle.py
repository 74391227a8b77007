"""One request at a time: how it starts, shares, ends, is refused, aborted or fails."""

from __future__ import annotations

import pytest
from table_model import EOS, Session, ask, expected, limits

from anychip.plan import StepResult
from anychip.request import FinishReason
from anychip.schedule.noise import uniform
from anychip.schedule.scheduler import QueueFull, RequestRefused, Scheduler, SchedulerHooks

LONG = list(range(1, 41))


def test_an_idle_scheduler_has_no_plan():
    session = Session(limits())
    assert session.plan() is None
    assert not session.scheduler.has_work()


@pytest.mark.parametrize("prompt", [[7], [7, 8, 9, 10], [7] * 5])
@pytest.mark.parametrize("max_tokens", [1, 2, 9])
def test_short_prompts_and_few_tokens(prompt, max_tokens):
    session = Session(limits())
    session.add(ask("a", prompt, max_tokens))
    session.drain()
    session.assert_right("a")
    assert len(session.tokens["a"]) == max_tokens


def test_a_prompt_runs_in_chunks_and_only_the_last_samples():
    session = Session(limits(chunk=16))
    session.add(ask("a", LONG, 1))
    session.drain()
    rows = [plan.rows[0] for plan in session.plans]
    assert [(r.start, len(r.tokens), r.sample) for r in rows] == [
        (0, 16, False),
        (16, 16, False),
        (32, 8, True),
    ]


def test_decodes_come_first_and_share_the_budget_with_several_prefills():
    session = Session(limits(step_tokens=20, chunk=8))
    session.add(ask("a", [1, 2], 20))
    session.step()
    session.add(ask("b", [5] * 10, 4))
    session.add(ask("c", [6] * 30, 4))
    plan = session.plan()
    assert [len(row.tokens) for row in plan.rows] == [1, 8, 8]
    assert plan.token_count <= 20


def test_a_step_of_decodes_that_want_nothing_else_is_plain():
    session = Session(limits(step_tokens=20, chunk=8))
    session.add(ask("a", [1, 2], 20))
    session.add(ask("b", [3], 20, temperature=0.5, top_k=3))
    session.step()
    session.step()
    session.add(ask("c", [5] * 10, 4))
    session.step()
    session.step()
    session.step()
    assert [plan.plain for plan in session.plans] == [False, True, False, False, True]


@pytest.mark.parametrize(
    "wish",
    [{"logprobs": 0}, {"prompt_logprobs": 0}, {"emit": (4, 5, 6)}, {"presence_penalty": 0.5}],
)
def test_a_step_is_not_plain_where_anything_else_is_wanted(wish):
    session = Session(limits())
    session.add(ask("a", [1, 2], 3, **wish))
    session.drain()
    assert len(session.plans) >= 3 and not any(plan.plain for plan in session.plans)


def test_prefills_under_way_come_before_new_ones():
    session = Session(limits(step_tokens=16, chunk=16))
    session.add(ask("a", LONG, 4))
    session.add(ask("b", [9, 9, 9], 4))
    session.step()
    session.step()
    plan = session.plan()
    assert [(row.start, len(row.tokens)) for row in plan.rows] == [(32, 8), (0, 3)]


def test_a_second_turn_finds_the_first_in_the_cache():
    session = Session(limits(page_size=4))
    session.add(ask("one", LONG[:10], 8))
    session.drain()
    conversation = LONG[:10] + session.tokens["one"] + [3, 3]
    session.add(ask("two", conversation, 4))
    session.drain()
    session.assert_right("two")
    # 17 positions of turn one were computed, 16 of them in whole pages.
    assert session.last["two"].cached_tokens == 16


def test_the_last_prompt_token_is_always_computed():
    session = Session(limits(page_size=4))
    for name in ("one", "two"):
        session.add(ask(name, LONG[:8], 1))
        session.drain()
        session.assert_right(name)
    assert session.last["two"].cached_tokens == 4
    assert session.plans[-1].rows[0].start == 4


def test_namespaces_do_not_share():
    session = Session(limits(page_size=1))
    session.add(ask("one", LONG, 1, namespace="a"))
    session.drain()
    session.add(ask("two", LONG, 1, namespace="b"))
    session.drain()
    assert session.last["two"].cached_tokens == 0


def test_choices_of_one_prompt_compute_it_once():
    session = Session(limits(page_size=4, step_tokens=128, chunk=128))
    for draw in range(4):
        session.add(ask(str(draw), LONG, 6, temperature=1.0, seed=9, draw=draw))
    session.drain()
    computed = sum(plan.token_count for plan in session.plans)
    assert computed <= 40 + 3 * 4 + 4 * 6
    for name in session.requests:
        session.assert_right(name)


def test_equal_prefills_side_by_side_end_on_the_same_pages():
    session = Session(limits(step_tokens=80), hooks=SchedulerHooks(force_miss=True))
    session.add(ask("a", LONG, 20))
    session.add(ask("b", LONG, 20))
    while not session.tokens["a"] or not session.tokens["b"]:
        session.step()
    # 10 shared pages, and one that each is about to write; without sharing it would be 22.
    assert session.scheduler.stats().pages_held == 10
    session.step()
    assert session.scheduler.stats().pages_held == 12
    session.drain()
    session.assert_right("a")
    session.assert_right("b")


def test_end_of_sequence_and_stop_tokens_are_included():
    prompt = next(
        [n, 3] for n in range(1, 500) if EOS in expected(ask("x", [n, 3], 20), 128)[0][1:-1]
    )
    session = Session(limits())
    session.add(ask("eos", prompt, 20, ignore_eos=False))
    session.drain()
    session.assert_right("eos")
    assert session.tokens["eos"][-1] == EOS
    second = expected(ask("x", prompt, 2), 128)[0][1]
    session.add(ask("stop", prompt, 20, stop_token_ids=(second,)))
    session.add(ask("deaf", prompt, 20))
    session.drain()
    session.assert_right("stop")
    assert session.finish("stop") is FinishReason.STOP
    assert session.finish("deaf") is FinishReason.LENGTH


def test_the_context_length_ends_a_request():
    session = Session(limits(context_length=16))
    session.add(ask("a", [1] * 10, 100))
    session.drain()
    assert len(session.tokens["a"]) == 6
    session.assert_right("a")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ask("a", [], 4), "empty prompt"),
        (ask("a", [1] * 128, 4), "prompt of 128 tokens, the context length 128"),
        (ask("a", [1] * 101, 4), "prompt of 101 tokens, the cache holds 100"),
        (ask("a", [1], 0), "max_tokens 0"),
        (ask("a", [1, -1], 4), "token id -1"),
        (ask("a", [1, 2**31], 4), "token id 2147483648"),
    ],
)
def test_what_can_never_run_is_refused(request_, text):
    session = Session(limits(pages=25))
    with pytest.raises(RequestRefused, match=text):
        session.add(request_)
    assert not session.scheduler.has_work()


def test_a_duplicate_id_is_refused_and_the_first_goes_on():
    session = Session(limits())
    session.add(ask("a", LONG, 8))
    with pytest.raises(RequestRefused, match="'a' is in use"):
        session.scheduler.add(ask("a", [1], 1))
    session.step()
    with pytest.raises(RequestRefused, match="'a' is in use"):
        session.scheduler.add(ask("a", [1], 1))
    session.drain()
    session.assert_right("a")
    session.scheduler.add(ask("a", [1], 1))


def test_a_full_queue_refuses_for_now():
    session = Session(limits(), max_queued=2)
    session.add(ask("a", [1], 4))
    session.add(ask("b", [1], 4))
    with pytest.raises(QueueFull, match="2 requests wait, the limit is 2"):
        session.add(ask("c", [1], 4))
    session.step()
    session.add(ask("c", [1], 4))
    session.drain()
    session.assert_right("c")


@pytest.mark.parametrize("field", ["pages", "page_size", "max_running", "step_tokens", "chunk"])
def test_impossible_limits_are_refused(field):
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Scheduler(limits(**{field: 0}), frozenset())


def test_abort_of_a_queued_request():
    session = Session(limits(max_running=1))
    session.add(ask("a", [1, 2], 8))
    session.add(ask("b", [1, 2], 8))
    session.step()
    assert session.scheduler.abort("b")
    assert not session.scheduler.abort("b")
    (output,) = session.scheduler.take_outputs()
    assert (output.request_id, output.finish) == ("b", FinishReason.ABORT)
    session.drain()
    session.assert_right("a")


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_abort_between_steps_returns_pages_at_once(steps):
    session = Session(limits(chunk=16), radix=False)
    session.add(ask("a", LONG, 20))
    for _ in range(steps):
        session.step()
    assert session.scheduler.stats().pages_held > 0
    assert session.scheduler.abort("a")
    session.assert_nothing_held()
    assert session.scheduler.stats().pages_free == 64
    assert session.scheduler.has_work()
    assert session.scheduler.take_outputs()[0].finish is FinishReason.ABORT
    assert not session.scheduler.has_work()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_abort_during_a_step_waits_for_its_commit_and_emits_no_token(steps):
    session = Session(limits(chunk=16))
    session.add(ask("a", LONG, 20))
    for _ in range(steps):
        session.step()
    plan = session.plan()
    had = len(session.tokens["a"])
    assert session.scheduler.abort("a")
    assert session.scheduler.stats().pages_held > 0
    session.commit(plan)
    assert session.finish("a") is FinishReason.ABORT
    assert len(session.tokens["a"]) == had
    session.assert_nothing_held()


def test_abort_takes_the_exact_id():
    session = Session(limits())
    session.add(ask("req-1", [1, 2], 4))
    session.add(ask("req-10", [1, 2], 4))
    assert not session.scheduler.abort("req-")
    assert session.scheduler.abort("req-1")
    session.drain()
    session.assert_right("req-10")


def test_a_failed_step_ends_its_rows_and_nothing_else():
    session = Session(limits(step_tokens=8, chunk=8, max_running=4))
    session.add(ask("a", [1, 2, 3], 8))
    session.step()
    session.add(ask("b", LONG[:7], 8))
    session.add(ask("c", [4, 4], 8))
    plan = session.plan()
    assert session.scheduler.abort("b")
    session.take(session.scheduler.fail(plan, "kernel timed out"))
    assert session.scheduler.check() == []
    assert (session.finish("a"), session.last["a"].error) == (
        FinishReason.ERROR,
        "kernel timed out",
    )
    assert session.finish("b") is FinishReason.ABORT
    session.drain()
    session.assert_right("c")
    session.assert_nothing_held()


def test_nothing_of_a_failed_step_is_found_in_the_cache():
    session = Session(limits(page_size=1))
    session.add(ask("a", LONG, 8))
    session.take(session.scheduler.fail(session.plan(), "lost"))
    session.add(ask("b", LONG, 8))
    session.drain()
    assert session.last["b"].cached_tokens == 0
    session.assert_right("b")


@pytest.mark.parametrize(("fails", "cached"), [(False, 43), (True, 40)])
def test_the_output_of_an_aborted_request_is_cached_and_of_a_failed_one_is_not(fails, cached):
    session = Session(limits(page_size=1))
    session.add(ask("a", LONG, 20))
    for _ in range(4):
        session.step()
    if fails:
        session.take(session.scheduler.fail(session.plan(), "lost"))
    else:
        session.scheduler.abort("a")
    session.add(ask("b", LONG + session.tokens["a"] + [3], 2))
    session.drain()
    assert session.last["b"].cached_tokens == cached
    session.assert_right("b")


def test_plan_and_commit_alternate():
    session = Session(limits())
    session.add(ask("a", [1, 2], 4))
    plan = session.plan()
    with pytest.raises(RuntimeError, match="step 1 is in flight"):
        session.scheduler.plan()
    with pytest.raises(ValueError, match="1 rows, the result 2 tokens"):
        session.scheduler.commit(plan, StepResult(tokens=(1, 2)))
    with pytest.raises(ValueError, match="row 0 asked for a token and got -2"):
        session.scheduler.commit(plan, StepResult(tokens=(-2,)))
    session.commit(plan)
    with pytest.raises(ValueError, match="step 1 is not the oldest in flight"):
        session.scheduler.commit(plan, StepResult(tokens=(1,)))
    session.drain()
    session.assert_right("a")


def test_flush_only_when_nothing_runs_or_waits():
    session = Session(limits(page_size=1))
    session.add(ask("a", LONG, 2))
    assert not session.scheduler.flush_cache()
    session.step()
    assert not session.scheduler.flush_cache()
    session.drain()
    assert session.scheduler.stats().pages_cached == 41
    assert session.scheduler.flush_cache()
    assert session.scheduler.stats().pages_free == 64
    session.add(ask("b", LONG, 2))
    session.drain()
    assert session.last["b"].cached_tokens == 0


def test_rows_carry_the_sampling_and_its_noise():
    session = Session(limits())
    session.add(ask("a", [1, 2], 3, temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, seed=3, draw=2))
    session.add(ask("b", [3, 4], 3, temperature=1e-7))
    session.drain()
    rows = [plan.rows[0] for plan in session.plans]
    assert [row.noise for row in rows] == [uniform(3, at, 2) for at in range(3)]
    row = rows[0]
    assert (row.temperature, row.top_k, row.top_p, row.min_p) == (0.7, 5, 0.9, 0.1)
    assert session.plans[0].rows[1].temperature == 0.0


def test_stats_add_up():
    session = Session(limits(page_size=1))
    session.add(ask("a", LONG, 4))
    session.drain()
    session.add(ask("b", LONG, 4))
    session.drain()
    stats = session.scheduler.stats()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (80, 39, 8)
    assert stats.steps == len(session.plans)
    assert stats.pages_total == stats.pages_free + stats.pages_cached + stats.pages_held
