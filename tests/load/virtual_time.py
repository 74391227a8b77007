"""An event loop whose clock jumps to the next timer when nothing else is to do."""

from __future__ import annotations

import asyncio
import selectors

from anychip.bench.load.calls import Answer, Call


class _Jumping(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        if timeout:
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


class ScriptedSender:
    """Answers each call after `service_s` seconds of virtual time; busy_s: sending takes so long
    of the client's own time."""

    def __init__(self, service_s: float) -> None:
        self.service_s = service_s

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def send(self, call: Call, start: float, scheduled_s: float) -> Answer:
        sent = self.clock() - start
        await asyncio.sleep(self.service_s)
        end = self.clock() - start
        return Answer(id=call.id, scheduled_s=scheduled_s, sent_s=sent, end_s=end, first_s=end)


def run_virtually(work):
    """Run a coroutine in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
