"""The same events as a state machine of hypothesis, which looks for short lives."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from life import Life
from mutants import MUTANTS
from random_life import (
    LARGE_PAGES,
    MOST_ALIVE,
    SMALL_PAGES,
    Event,
    draw_arrival,
    draw_world,
)

from anychip.schedule.scheduler import Scheduler

DICE = st.randoms(use_true_random=False)
ROWS = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


class SchedulerMachine(RuleBasedStateMachine):
    """One life, whose events hypothesis chooses."""

    make = staticmethod(Scheduler)

    @initialize(dice=DICE)
    def begin(self, dice):
        self.world = draw_world(dice, (*SMALL_PAGES, *LARGE_PAGES))
        self.life = Life(self.world, self.make)
        note(f"{self.world.limits} {self.world.options}")

    def happen(self, event: Event) -> None:
        note(str(event))
        self.life.apply(event)

    @rule(dice=DICE, kind=st.sampled_from(["add", "add", "draws", "turn"]))
    def arrive(self, dice, kind):
        if len(self.life.alive) < MOST_ALIVE:
            for event in draw_arrival(dice, self.world, self.life, kind):
                self.happen(event)

    @rule(times=st.integers(1, 12), seconds=st.sampled_from([None, 0.001, 1.0]))
    def step(self, times, seconds):
        for _ in range(times):
            self.happen(Event("plan"))
            self.happen(Event("commit", seconds=seconds))

    @precondition(lambda self: not self.life.flights)
    @rule()
    def plan(self):
        self.happen(Event("plan"))

    @precondition(lambda self: self.life.flights)
    @rule()
    def ahead(self):
        self.happen(Event("ahead"))

    @precondition(lambda self: self.life.alive)
    @rule(at=st.integers(0, MOST_ALIVE - 1), kind=st.sampled_from(["abort", "abort", "again"]))
    def single_out(self, at, kind):
        names = sorted(self.life.alive)
        name = names[at % len(names)]
        self.happen(Event(kind, name=name, request=self.life.session.requests[name]))

    @precondition(lambda self: self.life.flights)
    @rule(rows=ROWS)
    def spoil(self, rows):
        self.happen(Event("spoil", rows=rows))

    @precondition(lambda self: self.life.flights)
    @rule(reached=st.booleans())
    def fail(self, reached):
        self.happen(Event("fail", reached=reached))

    @rule(seconds=st.sampled_from([0.5, 6.0, -2.0]))
    def wait(self, seconds):
        self.happen(Event("wait", seconds=seconds))

    @rule(kind=st.sampled_from(["flush", "collect", "mismatch"]))
    def poke(self, kind):
        self.happen(Event(kind))

    def teardown(self):
        if hasattr(self, "life"):
            self.life.drain()


def chosen(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_short_lives():
    run_state_machine_as_test(SchedulerMachine, settings=chosen(60))


@pytest.mark.slow
def test_many_short_lives():
    run_state_machine_as_test(SchedulerMachine, settings=chosen(5_000))


def test_a_planted_mistake_is_found():
    """Found alone: shortening takes minutes, and `long_run.shrunk` is tested to do it."""

    class Mutant(SchedulerMachine):
        make = staticmethod(MUTANTS["a changed table entry not told"])

    phases = (Phase.generate,)
    told = "the plans told another page table than its own|another sequence's state"
    with pytest.raises(AssertionError, match=told):
        run_state_machine_as_test(Mutant, settings=settings(chosen(300), phases=phases))
