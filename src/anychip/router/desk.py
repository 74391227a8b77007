"""What every call of a router needs, in one place."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.requests import Request

from anychip.config import RouterConfig
from anychip.http.errors import ApiError, unavailable
from anychip.http.keys import Access
from anychip.http.relay import Headers, Relay

from .fleet import Fleet
from .holders import Holders
from .picking import Picker
from .watching import Telemetry

_KEYS = (b"authorization", b"x-api-key")
_NOT_PASSED = frozenset({b"accept-encoding", b"origin", b"referer", b"x-request-id"})
"""Answers are read, so they come unpacked; whether a web page may ask is decided here."""


@dataclass(kw_only=True)
class Desk:
    """The parts of a router. worker_key: sent to workers in place of the client's own. id: its
    name in the header `Via`, by which it knows what it passed on itself."""

    config: RouterConfig
    access: Access
    relay: Relay
    fleet: Fleet
    picker: Picker
    hub: Telemetry
    worker_key: str | None = None
    holders: Holders = field(default_factory=Holders)
    draining: bool = False
    id: str = field(default_factory=lambda: f"anychip-router-{secrets.token_hex(8)}")
    live: set[asyncio.Task[object]] = field(default_factory=set)

    @property
    def retries(self) -> int:
        """Workers after the first that a call may be given to."""
        return self.config.retries

    @property
    def one_tenant(self) -> bool:
        """Whether workers see all clients as one: then they do not keep tenants apart."""
        return self.worker_key is not None

    def check_open(self, request: Request) -> None:
        """ApiError 503 where no new call is taken, 508 for one that came from this router."""
        if self.draining:
            raise unavailable("the router is shutting down", "shutting_down")
        self.check_loop(request)

    def check_loop(self, request: Request) -> None:
        """ApiError 508 for a call that this router itself has passed on."""
        if any(self.id in passed for passed in request.headers.getlist("via")):
            text = "this router is among its own workers, or among those of one; take it out"
            raise ApiError(508, text, type="server_error", code="router_loop")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The task that runs now answers a call: the end of the router waits for it."""
        task = asyncio.current_task()
        assert task is not None
        self.live.add(task)
        try:
            yield
        finally:
            self.live.discard(task)

    def cut_all(self) -> int:
        """End every running call; how many there were."""
        running = list(self.live)
        for task in running:
            task.cancel()
        return len(running)

    def headers_for_worker(self, given: Headers) -> Headers:
        """Headers of a call as a worker gets them."""
        left_out = _NOT_PASSED if self.worker_key is None else {*_NOT_PASSED, *_KEYS}
        found = [(name, value) for name, value in given if name.lower() not in left_out]
        if self.worker_key is not None:
            return found + self.own_headers()
        return [*found, self._via]

    def own_headers(self) -> Headers:
        """What the router shows of itself to workers, when it asks on its own account."""
        key = self.worker_key or self.config.api_key
        shown = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
        return [*shown, self._via]

    @property
    def _via(self) -> tuple[bytes, bytes]:
        return b"via", b"1.1 " + self.id.encode()
