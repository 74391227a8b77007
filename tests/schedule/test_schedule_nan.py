"""A row that asked for a token and had none to choose: that request ends, nothing else does."""

from __future__ import annotations

import pytest
from table_model import Session, ask, limits

from anychip.plan import NOT_SAMPLED, StepPlan, StepResult
from anychip.request import FinishReason

LONG = list(range(1, 41))


class SpoiledRunner:
    """The table model, whose answers for one slot are NaN."""

    def __init__(self, runner, slot: int) -> None:
        self.runner, self.slot = runner, slot

    def run(self, plan: StepPlan) -> StepResult:
        right = self.runner.run(plan).tokens
        rows = zip(plan.rows, right, strict=True)
        return StepResult(tokens=tuple(NOT_SAMPLED if r.slot == self.slot else t for r, t in rows))


def spoil(session: Session, name: str) -> None:
    """From now on the logits of this running request are NaN."""
    state = session.scheduler._state
    session.runner = SpoiledRunner(session.runner, state.by_id[name].slot)


def test_the_request_ends_with_a_text_that_names_the_way_out():
    session = Session(limits())
    session.add(ask("a", LONG, 8))
    session.step()
    had = list(session.tokens["a"])
    spoil(session, "a")
    session.step()
    last = session.last["a"]
    assert last.finish is FinishReason.ERROR and session.tokens["a"] == had
    assert last.error.startswith("the model's logits are not numbers (NaN): ")
    for part in ("weights", "the chip's arithmetic", "--dtype float32", "anychip coverage"):
        assert part in last.error
    session.assert_nothing_held()
    assert not session.scheduler.has_work()


@pytest.mark.parametrize("chunk", [8, 16, 40])
def test_nothing_that_it_computed_is_found_again(chunk):
    session = Session(limits(page_size=4, chunk=chunk))
    session.add(ask("a", LONG, 8))
    plan = session.plan()
    spoil(session, "a")
    session.commit(plan)
    session.drain()
    assert session.finish("a") is FinishReason.ERROR
    stats = session.scheduler.stats()
    assert (stats.pages_cached, stats.pages_free) == (0, 64)
    session.runner = session.runner.runner
    session.add(ask("b", LONG, 8))
    session.drain()
    assert session.last["b"].cached_tokens == 0
    session.assert_right("b")


def test_neighbours_keep_their_answers_and_what_they_share():
    session = Session(limits(page_size=4))
    session.add(ask("a", LONG, 12))
    session.step()
    session.step()
    session.add(ask("b", [*LONG, 7, 7, 7, 7, 7], 12))
    session.step()
    spoil(session, "b")
    session.drain()
    assert session.finish("b") is FinishReason.ERROR
    session.assert_right("a")
    session.assert_nothing_held()
    session.add(ask("c", LONG, 12))
    session.runner = session.runner.runner
    session.drain()
    assert session.last["c"].cached_tokens == 36
    session.assert_right("c")


def test_an_aborted_one_leaves_nothing_behind_either():
    session = Session(limits(page_size=4))
    session.add(ask("a", LONG, 8))
    plan = session.plan()
    spoil(session, "a")
    session.scheduler.abort("a")
    session.commit(plan)
    session.drain()
    assert session.last["a"].finish is not None
    assert session.scheduler.stats().pages_free == 64


def test_eviction_goes_on_after_a_prefix_was_dropped():
    session = Session(limits(page_size=1, pages=60))
    for number in range(4):
        session.add(ask(f"bad{number}", [number + 1, *LONG], 2))
        plan = session.plan()
        spoil(session, f"bad{number}")
        session.commit(plan)
        session.drain()
        session.runner = session.runner.runner
        session.add(ask(f"good{number}", [number + 1, *LONG], 2))
        session.drain()
        session.assert_right(f"good{number}")
    assert session.scheduler.stats().evicted_pages > 0
