"""`/debug/stacks`: what both processes do for some seconds. An admin action, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.client import EngineUnavailable
from anychip.engine.evidence import (
    LEAST_HERTZ,
    LONGEST_S,
    MOST_HERTZ,
    SHORTEST_S,
    Evidence,
    ProcessSeen,
)
from anychip.engine.kernel_facts import MachineWatch
from anychip.http.auth import require_admin
from anychip.http.errors import ApiError, bad_request, timed_out, unavailable
from anychip.server.service import Service

HTTP = "http"
"""Purpose of the thread whose event loop answers."""
_LIMITS = {
    "seconds": (2.0, SHORTEST_S, LONGEST_S),
    "hertz": (50.0, LEAST_HERTZ, MOST_HERTZ),
}
"""Parameters: the value where none is sent, the least, the most."""
_ANSWER_S = 30.0
"""How long after the look the engine may take to answer: it reads between two steps."""


class _OwnLook:
    """A look at this process, in a thread that no end of the server waits for.

    seen: what it saw. ended: set it to end the look early.
    """

    def __init__(self, seconds: float, hertz: float) -> None:
        self._loop, self.ended = asyncio.get_running_loop(), threading.Event()
        self.seen: asyncio.Future[ProcessSeen] = self._loop.create_future()
        given = (seconds, hertz, {threading.get_native_id(): HTTP})
        threading.Thread(target=self._look, args=given, name="look", daemon=True).start()

    def _look(self, seconds: float, hertz: float, purposes: dict[int, str]) -> None:
        from anychip.engine.stacks import sample_process

        try:
            seen = sample_process("server", seconds, hertz, purposes, self.ended)
        except Exception as error:  # noqa: BLE001 (raised again where it is awaited)
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, seen)

    def _tell(self, told: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the server has ended: nobody waits
            self._loop.call_soon_threadsafe(told, what)

    def _succeed(self, seen: ProcessSeen) -> None:
        if not self.seen.done():
            self.seen.set_result(seen)

    def _fail(self, error: Exception) -> None:
        if not self.seen.done():
            self.seen.set_exception(error)


class StacksWatch:
    """Looks of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._busy = False

    async def look(self, seconds: float, hertz: float) -> Evidence:
        """Both processes at once. ApiError 409, 503, 504."""
        if self._busy:
            text = "another look is under way; ask again when it has ended"
            raise ApiError(409, text, code="look_under_way")
        self._busy = True
        machine, own = MachineWatch(), _OwnLook(seconds, hertz)
        try:
            engine = await self._engine(seconds, hertz)
            server = await own.seen
        finally:
            own.ended.set()
            self._busy = False
        return Evidence(
            seconds=seconds, hertz=hertz, processes=(server, engine), machine=machine.seen()
        )

    async def _engine(self, seconds: float, hertz: float) -> ProcessSeen:
        asked = self._service.client.look(seconds, hertz)
        try:
            return await asyncio.wait_for(asked, seconds + _ANSWER_S)
        except EngineUnavailable as error:
            raise unavailable(str(error), "engine_unavailable") from error
        except asyncio.TimeoutError as error:
            text = f"the engine did not answer within {_ANSWER_S:g} s: a step takes longer"
            raise timed_out(text) from error


async def stacks(request: Request) -> Response:
    """The evidence of the next seconds."""
    require_admin(request)
    seconds, hertz = _asked(request)
    watch: StacksWatch = request.app.state.stacks
    found = await watch.look(seconds, hertz)
    return Response(msgspec.json.encode(found), media_type="application/json")


def _asked(request: Request) -> tuple[float, float]:
    unknown = sorted(set(request.query_params) - set(_LIMITS))
    if unknown:
        raise bad_request(f"unknown parameter {unknown[0]!r}; known are seconds, hertz", unknown[0])
    return _number(request, "seconds"), _number(request, "hertz")


def _number(request: Request, name: str) -> float:
    usual, least, most = _LIMITS[name]
    text = request.query_params.get(name)
    try:
        value = usual if text is None else float(text)
    except ValueError:
        raise bad_request(f"{name} is {text!r}, which is no number", name) from None
    if not least <= value <= most:
        raise bad_request(f"{name} is {text}; it must lie in {least:g} to {most:g}", name)
    return value
