"""Who may ask: API keys, and requests that a foreign web page made a browser send."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anychip.http.errors import ApiError
from anychip.http.keys import Access, Caller
from anychip.http.listening import is_loopback

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Probes and scrapers need no key; they show no prompt and change nothing."""


_CALLER, _ACCESS = "anychip.caller", "anychip.access"


class KeyCheck:
    """ASGI layer: `Authorization: Bearer KEY`, or `x-api-key: KEY`, on all but the open paths.

    The admin key opens everything; without any key nothing is checked.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http":
            caller = self._access.caller(key_of(Headers(scope=scope)))
            if caller is None and self._access.needed and scope["path"] not in OPEN_PATHS:
                await _unauthorized().response(scope["path"])(scope, receive, send)
                return
            scope[_CALLER], scope[_ACCESS] = caller or Caller(), self._access
        await self._app(scope, receive, send)


def caller_of(request: Request) -> Caller:
    """Whose request it is, as `KeyCheck` found."""
    caller: Caller = request.scope[_CALLER]
    return caller


def caller_in(scope: Scope) -> str | None:
    """A word for the log: the key's name, "admin", or "key"; None where nobody had to show one."""
    caller: Caller | None = scope.get(_CALLER)
    if caller is None or caller == Caller():
        return None
    return "admin" if caller.admin else caller.tenant


def key_of(headers: Headers) -> str:
    """The bearer token, else the `x-api-key` of Anthropic's clients; empty where neither is."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    given = key.strip() if scheme.lower() == "bearer" else ""
    return given or headers.get("x-api-key", "")


def _unauthorized() -> ApiError:
    return ApiError(
        401,
        "a valid key is needed: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
        type="authentication_error",
        code="invalid_api_key",
    )


def require_admin(request: Request) -> None:
    """ApiError 403 where the request needs the admin key and does not bring it."""
    access: Access = request.scope[_ACCESS]
    if not (access.admin_open or caller_of(request).admin):
        raise ApiError(
            403,
            f"{request.url.path} needs the admin key (--admin-api-key):"
            " send 'Authorization: Bearer ADMIN_KEY'",
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
                await error.response(scope["path"])(scope, receive, send)
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
