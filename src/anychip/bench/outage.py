"""A server that goes away under load: seen at once, then waited for, so that nobody asks a dead
one again and again."""

from __future__ import annotations

import asyncio
import time

from anychip.bench.load.calls import Answer, Failure, LoadError
from anychip.bench.load.client import LoadClient

READY_S = 120.0
"""How long a server may take to be ready again."""
PAUSE_S = 0.5
_UNAVAILABLE = 503


class Outage:
    """Hears the answers of one load, and knows when the server is gone. why: empty while it is
    there.

    concurrency: callers of the load. A server of ours says that its engine is dead; of any other,
    so many calls in a row that nobody took mean that it is.
    """

    def __init__(self, concurrency: int) -> None:
        self._most, self._in_a_row = concurrency, 0
        self.why = ""

    def hear(self, answer: Answer) -> None:
        """One call is over."""
        failure = answer.failure
        if failure is None:
            self._in_a_row = 0
            return
        self._in_a_row += failure.kind == "connect"
        if _is_down(failure) or self._in_a_row >= self._most:
            self.why = self.why or f"{failure.kind}: {failure.text}"


def _is_down(failure: Failure) -> bool:
    """The 503 of a server whose queue is full is of kind busy."""
    return failure.kind == "server" and failure.status == _UNAVAILABLE


async def ready_again(client: LoadClient, *, ours: bool, limit_s: float) -> bool:
    """Wait until the server takes requests, for `limit_s` at most; whether it does. ours: it has
    /ready; another one is ready when it lists its models."""
    until = time.monotonic() + limit_s
    while True:
        try:
            await (client.get("/ready", beside=True) if ours else client.get("/models"))
        except LoadError:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(PAUSE_S)
        else:
            return True
