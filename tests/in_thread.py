"""A server or a router of ours in a thread of this process, until a test is over."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import httpx
import uvloop

from anychip.http.listening import bind, url_of
from anychip.http.stop import Stop

PATIENCE_S = 120


class InThread:
    """What is common to both. ready: set once it serves, or has failed with `error`."""

    def __init__(self, config) -> None:
        self.config = config
        self.socket = bind(config.host, config.port)
        self.url = url_of(self.socket, secure=config.ssl_certfile is not None)
        self.ready, self.exit_code, self.error = threading.Event(), None, None
        self.thread = threading.Thread(target=self._main, daemon=True)

    async def serve(self) -> int:
        """Until `self.stop` is called; sets `ready`."""
        raise NotImplementedError

    def _main(self) -> None:
        try:
            self.exit_code = uvloop.run(self._serve())
        except Exception as error:  # noqa: BLE001 (raised again in the test's thread)
            self.error = error
        finally:
            self.socket.close()
            self.ready.set()

    async def _serve(self) -> int:
        self.loop, self.stop = asyncio.get_running_loop(), Stop()
        return await self.serve()

    def ask_to_stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stop)

    def http(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, headers=headers)


@contextmanager
def in_thread(program: InThread):
    """It, ready; raises what kept it from that. Asked twice to stop when the block is left."""
    program.thread.start()
    assert program.ready.wait(PATIENCE_S)
    if program.error is not None:
        raise program.error
    try:
        yield program
    finally:
        if program.thread.is_alive():
            program.ask_to_stop()
            program.ask_to_stop()
        program.thread.join(30)
        assert not program.thread.is_alive()
