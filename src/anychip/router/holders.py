"""Which worker keeps which response, and which runs which call, for what is asked about later."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MOST = 65536
"""Responses that are remembered; the oldest are forgotten beyond."""


class Owned(NamedTuple):
    """An id and whose it is: tenants do not see each other's."""

    tenant: str | None
    id: str


class Holders:
    """Belongs to one event loop. stored: responses that a worker keeps; running: calls in flight,
    by the client's rid and by the id that the worker gave."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._stored: OrderedDict[Owned, str] = OrderedDict()
        self._running: dict[Owned, str] = {}

    def stored(self, owned: Owned) -> str | None:
        """Name of the worker that keeps the response; None where it is not known."""
        return self._stored.get(owned)

    def store(self, owned: Owned, worker: str) -> None:
        """The worker keeps this response."""
        self._stored[owned] = worker
        self._stored.move_to_end(owned)
        if len(self._stored) > self._most:
            self._stored.popitem(last=False)

    def drop(self, owned: Owned) -> None:
        """It was deleted."""
        self._stored.pop(owned, None)

    def begun(self, owned: Owned, worker: str) -> None:
        """The worker runs this call."""
        self._running[owned] = worker

    def ended(self, owned: Owned) -> None:
        """It does not any more."""
        self._running.pop(owned, None)

    def running(self, name: str, tenant: str | None, *, admin: bool) -> str | None:
        """The worker that runs the call: of this tenant, or of anybody for the admin."""
        found = self._running.get(Owned(tenant, name))
        if found is None and admin:
            found = next((w for owned, w in self._running.items() if owned.id == name), None)
        return found
