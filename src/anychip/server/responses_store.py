"""Responses that can be read again by their ids, for each tenant its own; bounded, in memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from anychip.http.errors import ApiError


class Kept(Protocol):
    """What is kept of a response (`responses_run.ResponseRun`)."""

    @property
    def running(self) -> bool:
        """Whether it still grows; such a one is never evicted."""

    def size(self) -> int:
        """Bytes that it takes, as JSON."""


_K = TypeVar("_K", bound=Kept)


class _Shelf(Generic[_K]):
    """One tenant's responses, the one used longest ago first, with the bytes of finished ones."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, tuple[_K, int]] = OrderedDict()
        self.bytes = 0


class ResponseStore(Generic[_K]):
    """most, most_bytes: of finished responses for each tenant; what was used longest ago goes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._shelves: dict[str | None, _Shelf[_K]] = {}
        self.running = 0
        """Responses of all tenants that run in the background."""

    def has(self, tenant: str | None, name: str) -> bool:
        """Whether the tenant has a response of this id."""
        return tenant in self._shelves and name in self._shelves[tenant].kept

    def put(self, tenant: str | None, name: str, one: _K) -> None:
        """Keep a response, or measure one again that has finished. One that is larger than all
        the room is not kept.
        """
        shelf = self._shelves.setdefault(tenant, _Shelf())
        self._take(shelf, name)
        size = 0 if one.running else one.size()
        if size > self._most_bytes:
            return
        shelf.kept[name] = (one, size)
        shelf.bytes += size
        self._evict(shelf)

    def get(self, tenant: str | None, name: str, param: str = "id") -> _K:
        """The response. ApiError 404 where there is none."""
        if not self.has(tenant, name):
            raise ApiError(
                404,
                f"there is no response {name!r}: it never was, was not stored, was deleted, or"
                f" gave way to others (a tenant keeps {self._most} of together"
                f" {self._most_bytes} bytes, until the server ends)",
                param=param,
                code="response_not_found",
            )
        shelf = self._shelves[tenant]
        shelf.kept.move_to_end(name)
        return shelf.kept[name][0]

    def drop(self, tenant: str | None, name: str) -> None:
        """Forget a response, if it is there."""
        if tenant in self._shelves:
            self._take(self._shelves[tenant], name)

    def _take(self, shelf: _Shelf[_K], name: str) -> None:
        if name in shelf.kept:
            shelf.bytes -= shelf.kept.pop(name)[1]

    def _evict(self, shelf: _Shelf[_K]) -> None:
        finished = [name for name, (one, _) in shelf.kept.items() if not one.running]
        count = len(finished)
        for name in finished:
            if count <= self._most and shelf.bytes <= self._most_bytes:
                return
            self._take(shelf, name)
            count -= 1
