"""Counts HTTP requests and responses by route; a path that no route has counts as "other"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Others are counted together: names that clients make up must not become series."""


class HttpFigures:
    """Counts of one server, in its event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, str]] = Counter()
        self.active = 0


class HttpCount:
    """Outermost layer of the app: what is refused counts too."""

    def __init__(self, app: ASGIApp, figures: HttpFigures, routes: Sequence[Route]) -> None:
        self._app, self._figures, self._routes = app, figures, routes
        self._plain = frozenset(route.path for route in routes if "{" not in route.path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and count."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = self._figures
        method = scope["method"] if scope["method"] in METHODS else OTHER
        endpoint = self._endpoint(scope["path"])

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.responses[endpoint, method, str(message["status"])] += 1
            await send(message)

        found.requests[endpoint, method] += 1
        found.active += 1
        try:
            await self._app(scope, receive, counted)
        finally:
            found.active -= 1

    def _endpoint(self, path: str) -> str:
        if path in self._plain:
            return path
        patterns = (route for route in self._routes if "{" in route.path)
        return next((r.path for r in patterns if r.path_regex.match(path)), OTHER)
