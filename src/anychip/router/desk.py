"""What every call of a router needs, in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anychip.config import RouterConfig
from anychip.http.errors import unavailable
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
    """The parts of a router. worker_key: sent to workers in place of the client's own."""

    config: RouterConfig
    access: Access
    relay: Relay
    fleet: Fleet
    picker: Picker
    hub: Telemetry
    worker_key: str | None = None
    holders: Holders = field(default_factory=Holders)
    draining: bool = False
    live: set[asyncio.Task[object]] = field(default_factory=set)

    @property
    def retries(self) -> int:
        """Workers after the first that a call may be given to."""
        return self.config.retries

    @property
    def one_tenant(self) -> bool:
        """Whether workers see all clients as one: then they do not keep tenants apart."""
        return self.worker_key is not None

    def check_open(self) -> None:
        """ApiError 503 where no new call is taken."""
        if self.draining:
            raise unavailable("the router is shutting down", "shutting_down")

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

    def headers_for_worker(self, given: Headers) -> Headers:
        """Headers of a call as a worker gets them."""
        left_out = _NOT_PASSED if self.worker_key is None else {*_NOT_PASSED, *_KEYS}
        found = [(name, value) for name, value in given if name.lower() not in left_out]
        return found + self.key_headers() if self.worker_key is not None else found

    def key_headers(self) -> Headers:
        """What the router shows of itself to workers, when it asks on its own account."""
        key = self.worker_key or self.config.api_key
        return [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
