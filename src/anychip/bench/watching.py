"""Looks at a server while it is under load, again and again until the load has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from anychip.bench.facts import Poll
from anychip.bench.load.calls import LoadError
from anychip.bench.server_view import Getter, ask_device, ask_info, ask_stacks
from anychip.engine.evidence import Evidence

POLL_S = 0.25
HERTZ = 50.0


class Watching:
    """`async with`: looks of `look_s` seconds and polls in between, until the block is left.

    A look that is under way then is waited for, or the server would refuse the next one.
    troubles: what could not be asked, each once.
    """

    def __init__(self, client: Getter, look_s: float) -> None:
        self._client, self._look_s = client, look_s
        self._ended = asyncio.Event()
        self._all: list[tuple[Evidence, bool]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.polls: list[Poll] = []
        self.troubles: list[str] = []

    @property
    def looks(self) -> Sequence[Evidence]:
        """Those that ended before the load did; the first one, where none did."""
        within = [look for look, late in self._all if not late]
        return within or [look for look, _ in self._all[:1]]

    async def __aenter__(self) -> Watching:
        self._tasks = [asyncio.ensure_future(self._look()), asyncio.ensure_future(self._poll())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def _look(self) -> None:
        while not self._ended.is_set():
            try:
                look = await ask_stacks(self._client, self._look_s, HERTZ)
            except LoadError as error:
                self._note(error)
                return
            self._all.append((look, self._ended.is_set()))

    async def _poll(self) -> None:
        while not self._ended.is_set():
            try:
                info, device = await ask_info(self._client), await ask_device(self._client)
            except LoadError as error:
                self._note(error)
                return
            self.polls.append(
                Poll(
                    stats=info.stats,
                    utilization=device.utilization,
                    waiting=device.waiting,
                    at_s=time.monotonic(),
                )
            )
            await self._pause()

    async def _pause(self) -> None:
        waiting = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({waiting}, timeout=POLL_S)
        waiting.cancel()

    def _note(self, error: LoadError) -> None:
        if str(error) not in self.troubles:
            self.troubles.append(str(error))
