"""Which pages of the KV cache are free."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from anychip.plan import SINK_PAGE


class PageError(RuntimeError):
    """A page was freed twice or never existed, or more pages were taken than were free."""


class PageAllocator:
    """Hands out page ids 1 .. total, never the sink page."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._is_free = bytearray([0]) + bytearray([1]) * total
        # Popped from the end: low ids first, and a page just freed is the next one used.
        self._stack = array("i", range(total, SINK_PAGE, -1))

    @property
    def free_count(self) -> int:
        """Pages nobody has."""
        return len(self._stack)

    def take(self, count: int) -> list[int]:
        """Remove `count` pages from the free ones. PageError where there are fewer."""
        if count > len(self._stack):
            raise PageError(f"{count} pages asked for, {len(self._stack)} of {self.total} free")
        taken = [self._stack.pop() for _ in range(count)]
        for page in taken:
            self._is_free[page] = 0
        return taken

    def give_back(self, pages: Iterable[int]) -> None:
        """Make pages free again. PageError for a page that is free already or unknown."""
        for page in pages:
            if not SINK_PAGE < page <= self.total:
                raise PageError(f"page {page} is not one of 1 .. {self.total}")
            if self._is_free[page]:
                raise PageError(f"page {page} was freed twice")
            self._is_free[page] = 1
            self._stack.append(page)

    def free_pages(self) -> Iterator[int]:
        """Go through the free pages, for checks."""
        return iter(self._stack)
