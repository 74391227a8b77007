"""Calls that ask to leave HTTP/1.1: refused in words where they could not be answered in it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from anychip.http.errors import ApiError

_INSTEAD = (
    "ask over plain HTTP, as POST /v1/chat/completions, /v1/completions or /v1/responses; with "
    '"stream": true answers come as server-sent events'
)


def refused_upgrade(headers: Sequence[tuple[bytes, bytes]]) -> ApiError | None:
    """What to say to such a call; None for all others. headers: as ASGI has them.

    An offer of another protocol (h2c) may be passed over, but the body behind it is not read.
    """
    found = dict(headers)
    if b"upgrade" not in found or b"upgrade" not in found.get(b"connection", b"").lower():
        return None
    name = found[b"upgrade"].decode("latin-1")
    if "websocket" in name.lower():
        return ApiError(501, f"WebSockets are not served here: {_INSTEAD}", code="no_websockets")
    if found.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in found:
        return None
    text = f"Upgrade: {name!r} is not followed here, and a call that offers it can have no body: "
    text += "send it as HTTP/1.1 alone (curl --http1.1; of Java's HttpClient: Version.HTTP_1_1)"
    return ApiError(501, text, code="no_upgrade")


class PlainHttp:
    """ASGI layer: 501 for those who ask to leave it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no such call."""
        error = refused_upgrade(scope["headers"]) if scope["type"] == "http" else None
        app = self._app if error is None else error.response(scope["path"])
        await app(scope, receive, send)
