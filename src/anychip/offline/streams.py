"""Streams of `anychip.Engine`: parts as they come, for a thread and for an event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, suppress
from queue import Empty, SimpleQueue

from anychip.offline.answers import AnswerPart
from anychip.offline.telling import Telling
from anychip.offline.thread import WAKE_S, EngineThread
from anychip.server.service import Service

_Item = AnswerPart | Future[None]
"""A part; at the end the future of what put them there, which has the error where there was one."""

_Put = Callable[[_Item], object]


async def _pump(service: Service, telling: Telling, put: _Put) -> None:
    async with aclosing(telling.parts()) as parts:
        async for part in parts:
            put(part)


def _start(thread: EngineThread, telling: Telling, put: _Put) -> Future[None]:
    """Generate, whether or not anybody reads; the end is put too, also that of a cancelled one."""
    future = thread.submit(_pump, telling, put)
    future.add_done_callback(put)
    return future


class _Ended(Exception):
    """The stream has no more parts."""


def _part(item: _Item) -> AnswerPart:
    """The part. _Ended at the end; what went wrong is raised."""
    if isinstance(item, AnswerPart):
        return item
    with suppress(CancelledError):  # closed by its reader
        item.result()
    raise _Ended


class Stream(Iterator[AnswerPart]):
    """The parts of one call, for one reader that may wait. Closing it aborts what still runs.

    It is closed too when nobody holds it any more. rid: id of the call. owner: lives as long.
    """

    def __init__(self, thread: EngineThread, telling: Telling, owner: object) -> None:
        self.rid = telling.rid
        self._owner = owner
        self._parts: SimpleQueue[_Item] = SimpleQueue()
        self._running = _start(thread, telling, self._parts.put)
        weakref.finalize(self, self._running.cancel).atexit = False
        self._over = False

    def __next__(self) -> AnswerPart:
        """The next part. Raises CallError, EngineClosed."""
        if self._over:
            raise StopIteration
        item = self._next()
        self._over = not isinstance(item, AnswerPart)
        try:
            return _part(item)
        except _Ended:
            raise StopIteration from None

    def _next(self) -> _Item:
        while True:
            try:
                return self._parts.get(timeout=WAKE_S)
            except Empty:
                continue

    def close(self) -> None:
        """Abort what still runs; parts that were not read are lost."""
        self._over = True
        self._running.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncStream(AsyncIterator[AnswerPart]):
    """The same for the event loop that it was made in."""

    def __init__(self, thread: EngineThread, telling: Telling, owner: object) -> None:
        self.rid = telling.rid
        self._owner = owner
        self._parts: asyncio.Queue[_Item] = asyncio.Queue()
        put = _putting(asyncio.get_running_loop(), self._parts)
        self._running = _start(thread, telling, put)
        weakref.finalize(self, self._running.cancel).atexit = False
        self._over = False

    async def __anext__(self) -> AnswerPart:
        """The next part. Raises CallError, EngineClosed."""
        if self._over:
            raise StopAsyncIteration
        item = await self._parts.get()
        self._over = not isinstance(item, AnswerPart)
        try:
            return _part(item)
        except _Ended:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Abort what still runs; parts that were not read are lost."""
        self._over = True
        self._running.cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _putting(loop: asyncio.AbstractEventLoop, parts: asyncio.Queue[_Item]) -> _Put:
    """Puts into a queue of another thread's loop; where that is closed, the call is given up."""

    def put(item: _Item) -> None:
        try:
            loop.call_soon_threadsafe(parts.put_nowait, item)
        except RuntimeError as error:
            if isinstance(item, AnswerPart):
                raise asyncio.CancelledError("the reader's event loop is closed") from error

    return put
