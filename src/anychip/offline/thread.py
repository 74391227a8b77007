"""The thread that an `anychip.Engine` lives in: an event loop with what a server's has, but HTTP.

The kernel ends the engine process with the thread that started it, so one thread stays for all of
its life, however many threads and event loops call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import uvloop

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.http.errors import ApiError
from anychip.http.keys import Access
from anychip.offline.errors import EngineClosed, raised
from anychip.server.opening import Reading, open_service
from anychip.server.opening_texts import open_text
from anychip.server.service import Service

_CLOSE_S = 10.0
"""How long the engine process may take to end in good order, seconds."""
_CLOSED = "the Engine was closed; open another"

WAKE_S = 0.3
"""How often a wait looks for a signal, seconds: one that arrives in the moment in which another
thread starts a process does not end a wait of the main thread."""

_T = TypeVar("_T")


def outcome(future: Future[_T]) -> _T:
    """What `future.result()` gives, and Ctrl-C interrupts."""
    while not wait((future,), WAKE_S).done:
        pass
    return future.result()


class EngineThread:
    """Starts at once; `opened` tells when it can be used. Thread-safe."""

    def __init__(self, config: ServeConfig, builder: str) -> None:
        self.opened: Future[Service] = Future()
        """Raises StartError where the engine cannot start."""
        self._owner = os.getpid()
        self._config, self._builder = config, builder
        self._loop = uvloop.new_event_loop()
        self._begun, self._stop = asyncio.Event(), asyncio.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._end: Exception | None = None
        # No reason to keep a program from ending: what it leaves is closed at its exit.
        self._thread = threading.Thread(target=self._run, name="anychip-engine", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there are too many threads
            self._loop.close()
            raise
        except BaseException:  # interrupted: it begins all the same, and ends by itself
            self._closed = True
            self._loop.call_soon_threadsafe(self._stop.set)
            raise

    def submit(
        self, work: Callable[..., Coroutine[Any, Any, _T]], *arguments: object
    ) -> Future[_T]:
        """Run `work(service, *arguments)` in the thread, once the engine has started.

        Cancel the future to give it up. Raises EngineClosed; the future raises CallError too.
        """
        if os.getpid() != self._owner:
            raise EngineClosed(
                f"this Engine belongs to process {self._owner}, this is its fork {os.getpid()}:"
                " open an Engine here, or start processes with the method 'spawn'"
            )
        with self._lock:
            if self._closed:
                raise self._end or EngineClosed(_CLOSED)
            call = self._call(work, arguments)
            return asyncio.run_coroutine_threadsafe(call, self._loop)

    def close(self) -> None:
        """End calls, engine process and thread; nothing in a fork, or where it has ended."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:  # a collected Engine's is closed there
            self._thread.join()

    async def _call(
        self, work: Callable[..., Coroutine[Any, Any, _T]], arguments: tuple[object, ...]
    ) -> _T:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs in no task")
        self._calls.add(task)
        try:
            await self._begun.wait()
            return await work(self.opened.result(), *arguments)
        except asyncio.CancelledError:
            if self._end is not None:
                raise self._end from None
            raise
        except ApiError as error:
            raise raised(error) from error
        finally:
            self._calls.discard(task)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            with self._lock:
                self._closed = True
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _live(self) -> None:
        client = EngineClient(self._config, self._builder)
        reading = Reading(lambda: open_text(self._config))
        service: Service | None = None
        try:
            service = await self._open(client, reading)
            await self._stop.wait()
            self._end = EngineClosed(_CLOSED)
        except Exception as error:  # noqa: BLE001 (raised where the Engine is made or called)
            self._end = error
            self.opened.set_exception(error)
        finally:
            await self._end_calls()
            try:
                await client.close(_CLOSE_S)
            finally:
                if service is not None:
                    service.close()
                reading.end(wait=True)

    async def _open(self, client: EngineClient, reading: Reading) -> Service:
        everybody = Access(None, None, {})
        service = await open_service(self._config, client, self._stop, everybody, reading)
        if service is None:
            raise EngineClosed(_CLOSED)
        self.opened.set_result(service)
        self._begun.set()
        return service

    async def _end_calls(self) -> None:
        with self._lock:
            self._closed = True
        for _ in range(2):  # what was submitted before becomes a task, then begins
            await asyncio.sleep(0)
        for task in self._calls:
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
