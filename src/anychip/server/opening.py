"""Engine and texts, opened side by side: how a server and `anychip.Engine` begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.messages import StartError
from anychip.http.keys import Access
from anychip.request import FinishReason, Request, SamplingParams

if TYPE_CHECKING:
    from anychip.server.service import Service
    from anychip.text.chat import ChatTemplate
    from anychip.text.tokenizer import Tokenizer

Texts = tuple["Tokenizer", "ChatTemplate"]


class Reading:
    """Tokenizer and template, opened in a thread of its own. `end` must be called.

    read: opens them. What nobody has taken by the end is closed: the template has a process.
    """

    def __init__(self, read: Callable[[], Texts]) -> None:
        self._read = read
        self._pool = ThreadPoolExecutor(1, "anychip-reading")
        self._found: Future[Texts] | None = None

    async def begin(self) -> Texts:
        """Open them; what was wrong is raised."""
        self._found = self._pool.submit(self._read)
        return await asyncio.wrap_future(self._found)

    def abandon(self) -> None:
        """Close what was opened, or will have been: nobody uses it."""
        if self._found is not None:
            self._found.add_done_callback(_close)

    def end(self, *, wait: bool) -> None:
        """End the thread. wait: until it has ended."""
        self._pool.shutdown(wait=wait)


def _close(found: Future[Texts]) -> None:
    if not found.cancelled() and found.exception() is None:
        found.result()[1].close()


async def open_service(
    config: ServeConfig,
    client: EngineClient,
    stop: asyncio.Event,
    access: Access,
    reading: Reading,
) -> Service | None:
    """Engine and texts, ready to use; None where `stop` was set meanwhile. Raises StartError."""
    starting = asyncio.ensure_future(client.start())
    texts = asyncio.ensure_future(reading.begin())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        if not await _both_done(starting, texts, stopping):
            reading.abandon()
            return None
        if not config.skip_server_warmup:
            await _try_out(client)
        from anychip.server.service import Service

        service = Service(config, client, *texts.result(), access)
    except BaseException:
        reading.abandon()
        raise
    finally:
        for task in (starting, texts, stopping):
            task.cancel()
    return service


async def _both_done(
    starting: asyncio.Future[Any], texts: asyncio.Future[Any], stopping: asyncio.Future[Any]
) -> bool:
    """Wait for the first two; False where the third was done before. Raises what failed."""
    while not (starting.done() and texts.done()):
        waiting = [task for task in (starting, texts, stopping) if not task.done()]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return False
        for task in (texts, starting):
            if task.done():
                task.result()
    return True


async def _try_out(client: EngineClient) -> None:
    """A prefill and a decode, so that the first client does not pay for first times."""
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
    request = Request(id="trial", prompt=(0,), params=params)
    async with aclosing(client.generate(request)) as outputs:
        async for output in outputs:
            if output.finish is FinishReason.ERROR:
                hint = f"anychip conform --backend {client.info.backend} --level operators"
                raise StartError(f"the trial request failed: {output.error}; next: {hint}")
