"""How many calls are answered at once."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychip.http.errors import unavailable

_UNCOUNTED = frozenset({"/abort_request", "/flush_cache", "/start_profile", "/stop_profile"})
"""What relieves a full server, or shows why it is full, is never refused for that."""


def _uncounted(method: str, path: str) -> bool:
    ending = path.startswith("/v1/responses/") and path.endswith("/cancel")
    return method in ("GET", "DELETE") or ending or path in _UNCOUNTED


class CallLimit:
    """ASGI layer: 503 for a call over the limit, before its body is read. Probes are not counted.

    retry_after: the seconds that a refused client is told.
    """

    def __init__(self, app: ASGIApp, most: int, retry_after: Callable[[], int]) -> None:
        self._app = app
        self._most = most
        self._retry_after = retry_after
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 503."""
        if scope["type"] != "http" or _uncounted(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            text = f"{self._running} calls are being answered (--max-concurrent-requests)"
            error = unavailable(text, "too_many_calls", self._retry_after())
            await error.response(scope["path"])(scope, receive, send)
            return
        await self._count(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on. The place is free before the client has the end: its next call finds it so."""
        held = 1
        self._running += held

        async def freeing(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._running -= held
                held = 0
            await send(message)

        try:
            await self._app(scope, receive, freeing)
        finally:
            self._running -= held
