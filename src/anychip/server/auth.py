"""Who may ask: API keys, and requests that a foreign web page made a browser send."""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anychip.server.errors import ApiError
from anychip.server.listening import is_loopback

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Probes and scrapers need no key; they show no prompt and change nothing."""


class KeyCheck:
    """ASGI layer: `Authorization: Bearer KEY` on every path but the open ones.

    The admin key opens everything; without any key nothing is checked.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, admin_key: str | None) -> None:
        self._app = app
        self._keys = tuple(key for key in (api_key, admin_key) if key)
        self._needed = bool(api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http" and self._needed and scope["path"] not in OPEN_PATHS:
            given = bearer(Headers(scope=scope))
            if not any(same(given, key) for key in self._keys):
                await _unauthorized().response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def bearer(headers: Headers) -> str:
    """The bearer token, empty where there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def same(given: str, key: str) -> bool:
    """Compare in a time that tells nothing about the key. given: as Starlette decodes headers."""
    return compare_digest(given.encode("latin-1"), key.encode())


def _unauthorized() -> ApiError:
    return ApiError(
        401,
        "a valid key is needed: send 'Authorization: Bearer KEY'",
        type="authentication_error",
        code="invalid_api_key",
    )


def require_admin(request: Request) -> None:
    """ApiError 403 where an admin key is set and the request does not bring it."""
    key = request.app.state.service.config.admin_api_key
    if key and not same(bearer(request.headers), key):
        raise ApiError(
            403,
            f"{request.url.path} needs the admin key: send 'Authorization: Bearer ADMIN_KEY'",
            type="permission_error",
            code="admin_key_required",
        )


class OriginCheck:
    """ASGI layer: refuses what a foreign web page made a browser send.

    A page's Origin must be this server or this machine. A server that listens on loopback alone
    also wants a Host that means loopback: a name that an attacker points at 127.0.0.1 is none.
    """

    def __init__(self, app: ASGIApp, bound_host: str) -> None:
        self._app = app
        self._bound = bound_host.strip("[]").lower()
        self._local = is_loopback(bound_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 403."""
        if scope["type"] == "http":
            reason = self._refusal(Headers(scope=scope))
            if reason:
                error = ApiError(403, reason, type="permission_error", code="foreign_origin")
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> str:
        host = headers.get("host", "")
        name = _name(f"//{host}")
        if self._local and not (is_loopback(name) or name == self._bound):
            return f"Host {host!r} is not this machine; use 127.0.0.1, or --host to listen wider"
        origin = headers.get("origin")
        if origin is None or origin.partition("//")[2] == host or is_loopback(_name(origin)):
            return ""
        return f"requests from the web page {origin!r} are refused"


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
