"""A program that answers HTTP: its port, its loop, and the two signals that end it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from anychip.http.listening import bind
from anychip.http.stop import Stop
from anychip.signals import Ending, answered

Serve = Callable[[socket.socket, Stop], Coroutine[Any, Any, int]]
"""Answers on a bound socket until it is asked to stop; the exit code."""


def serve_until_signal(host: str, port: int, serve: Serve) -> int:
    """The exit code. The first signal asks to stop, the second to stop at once.

    Raises StartError where the address cannot be had, and whatever `serve` does.
    """
    with bind(host, port) as listening, answered() as ending:
        return uvloop.run(_until_signal(serve, listening, ending))


async def _until_signal(serve: Serve, listening: socket.socket, ending: Ending) -> int:
    stop, loop, code = Stop(), asyncio.get_running_loop(), 1
    ending.react = lambda number: loop.call_soon_threadsafe(stop)
    try:
        code = await serve(listening, stop)
        return code
    finally:
        ending.finish(code)
