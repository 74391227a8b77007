"""When calls are sent: an open loop by the clock, or a closed one of callers that wait.

An open loop never waits for answers: a slow server meets the same calls at the same times as a
fast one. In a closed loop the server sets the pace, so it hides queues; results say which it was.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from .calls import Answer, Call, LoadError, Run
from .client import Clock

Sleep = Callable[[float], Awaitable[None]]


class Sender(Protocol):
    """What sends a call, as `LoadClient` does."""

    @property
    def clock(self) -> Clock:
        """The clock that answers' times are told by."""

    async def send(self, call: Call, start: float, scheduled_s: float) -> Answer:
        """The answer; raises nothing that the server is to blame for."""


def _nothing(answer: Answer) -> None:
    """Who does not want to be told."""


class Watched:
    """Answers as they come, and when the load began; a load that is interrupted keeps them.

    told: is given each answer when it is over.
    """

    def __init__(self, sender: Sender, told: Callable[[Answer], None] = _nothing) -> None:
        self._sender, self._told = sender, told
        self.answers: list[Answer] = []
        self.under_way = 0
        self.start, self.begun = sender.clock(), time.time()

    async def send(self, call: Call, scheduled_s: float | None = None) -> None:
        """Send now. scheduled_s: None for a call that is due now."""
        due = self.now() if scheduled_s is None else scheduled_s
        self.under_way += 1
        answer = await self._sender.send(call, self.start, due)
        self.under_way -= 1
        self.answers.append(answer)
        self._told(answer)

    def now(self) -> float:
        """Seconds since the start."""
        return self._sender.clock() - self.start

    def run(
        self,
        loop: Literal["open", "closed"],
        *,
        speed: float = 1.0,
        concurrency: int | None = None,
        interrupted: bool = False,
    ) -> Run:
        """What has been seen so far."""
        ends = [answer.end_s for answer in self.answers]
        return Run(
            loop=loop,
            answers=tuple(sorted(self.answers, key=lambda answer: answer.sent_s)),
            seconds=max(ends, default=0.0),
            begun=self.begun,
            speed=speed,
            concurrency=concurrency,
            interrupted=interrupted,
            unanswered=self.under_way,
        )


async def open_loop(
    calls: Sequence[Call],
    sender: Sender,
    *,
    speed: float = 1.0,
    sleep: Sleep = asyncio.sleep,
    told: Callable[[Answer], None] = _nothing,
) -> Run:
    """Send each call `at_s / speed` after the start, whatever is still unanswered.

    A cancellation (Ctrl-C) ends the load: the run then has the answers so far. LoadError for a
    speed that is not above 0.
    """
    if not 0 < speed < float("inf"):
        raise LoadError(f"the speed is {speed:g}; it must be a number above 0")
    watched = Watched(sender, told)
    under_way: set[asyncio.Task[None]] = set()
    try:
        for call in sorted(calls, key=lambda call: call.at_s):
            due = call.at_s / speed
            if (wait := due - watched.now()) > 0:
                await sleep(wait)
            task = asyncio.ensure_future(watched.send(call, due))
            under_way.add(task)
            await asyncio.sleep(0)  # or calls of one moment would be sent when all are made
        await _all(under_way)
    except asyncio.CancelledError:
        await _cancel(under_way)
        return watched.run("open", speed=speed, interrupted=True)
    return watched.run("open", speed=speed)


async def closed_loop(
    calls: Iterable[Call],
    sender: Sender,
    *,
    concurrency: int,
    seconds: float | None = None,
    told: Callable[[Answer], None] = _nothing,
) -> Run:
    """So many callers, each of which sends the next call when it has its answer.

    calls: taken one by one, so they may be without end where `seconds` is given: no call is begun
    after that. A cancellation ends the load as in `open_loop`. LoadError for a concurrency under 1.
    """
    if concurrency < 1:
        raise LoadError(f"the concurrency is {concurrency}; it must be at least 1")
    watched, coming = Watched(sender, told), iter(calls)

    async def caller(mine: Iterator[Call]) -> None:
        for call in mine:
            if seconds is not None and watched.now() >= seconds:
                return
            await watched.send(call)

    callers = {asyncio.ensure_future(caller(coming)) for _ in range(concurrency)}
    try:
        await _all(callers)
    except asyncio.CancelledError:
        await _cancel(callers)
        return watched.run("closed", concurrency=concurrency, interrupted=True)
    return watched.run("closed", concurrency=concurrency)


def repeated(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls over and over, each time with ids of their own."""
    for turn in itertools.count():
        for call in calls:
            yield msgspec.structs.replace(call, id=f"{call.id}-{turn}") if turn else call


async def _all(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for every task; the first that raises ends the wait."""
    if tasks:
        await asyncio.gather(*tasks)


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    held = list(tasks)
    for task in held:
        task.cancel()
    if held:
        await asyncio.wait(held)
