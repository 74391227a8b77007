"""One turn of the engine's loop: commands in, a step, and what the server is told of it."""

from __future__ import annotations

import socket

import msgspec
import pytest

from anychip.engine.connection import Connection
from anychip.engine.messages import Abort, Commands, EngineMessage, StepMessage, Submit
from anychip.engine.process import EngineLoop
from anychip.figures import EngineFigures
from anychip.plan import SchedulerStats
from anychip.request import FinishReason, Request, SamplingParams, StepOutput

REQUEST = Request(id="a", prompt=(1, 2), params=SamplingParams(max_tokens=9))
TOKEN = StepOutput(request_id="a", token_ids=(5,))
LAST = StepOutput(request_id="a", token_ids=(6,), finish=FinishReason.STOP)


class Steps:
    """An engine of which each step gives what stands in `coming`."""

    def __init__(self) -> None:
        self.coming: list[list[StepOutput]] = []
        self.due: EngineFigures | None = None

    def submit(self, request: Request) -> None:
        self.coming += [[TOKEN], [TOKEN], [TOKEN], [LAST]]

    def abort(self, request_id: str) -> None:
        self.coming = [[LAST]] if self.coming else []

    def has_work(self) -> bool:
        return bool(self.coming)

    def step(self) -> list[StepOutput]:
        return self.coming.pop(0)

    def stats(self) -> SchedulerStats:
        return SchedulerStats(running=len(self.coming))

    def figures(self) -> EngineFigures | None:
        return self.due


class Wire:
    """Both ends of a loop's connection."""

    def __init__(self, ours: Connection, loop: EngineLoop, engine: Steps) -> None:
        self._ours, self._loop, self.engine = ours, loop, engine
        self._decoder = msgspec.msgpack.Decoder(EngineMessage)

    def turn(self, *commands) -> StepMessage:
        if commands:
            self._ours.send(Commands(list(commands)))
        assert self._loop.turn()
        return self._ours.receive_one(self._decoder)


@pytest.fixture
def wire():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine = Steps()
        yield Wire(Connection(ours), EngineLoop(Connection(theirs), engine), engine)


def test_the_books_are_told_where_something_comes_or_ends(wire) -> None:
    told = [wire.turn(Submit(REQUEST)), *(wire.turn() for _ in range(3))]
    assert [message.outputs[0].token_ids for message in told] == [(5,), (5,), (5,), (6,)]
    assert [message.stats and message.stats.running for message in told] == [3, None, None, 0]


def test_the_books_come_with_the_figures_and_after_an_abort(wire) -> None:
    wire.turn(Submit(REQUEST))
    wire.engine.due = EngineFigures()
    assert wire.turn().stats == SchedulerStats(running=2)
    wire.engine.due = None
    assert wire.turn().stats is None
    assert wire.turn(Abort("a")).stats == SchedulerStats(running=0)


def test_an_idle_engine_tells_its_books(wire) -> None:
    assert wire.turn(Abort("b")).stats == SchedulerStats(running=0)
