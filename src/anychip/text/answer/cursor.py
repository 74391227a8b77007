"""Text that arrives in deltas, read as if it were there as a whole.

A reader is a generator: where it needs more text than there is, it yields, and goes on with the
next delta. So what it reads cannot depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""Work that yields where it waits for more text, and returns a value."""


class Cursor:
    """A place in a text of which more may come."""

    def __init__(self) -> None:
        self.ended = False
        self._chunk = ""
        self._at = 0
        self._since: list[str] | None = None  # text since the mark, up to this chunk
        self._from = 0

    def put(self, delta: str) -> None:
        """More text, once all that was there is read."""
        if self._since is not None:
            self._since.append(self._chunk[self._from :])
        self._chunk = self._chunk[self._at :] + delta
        self._at = self._from = 0

    def more(self) -> Steps[bool]:
        """Wait for a character; False where the text is over."""
        while self._at >= len(self._chunk):
            if self.ended:
                return False
            yield
        return True

    def char(self) -> Steps[str]:
        """The next character, which stays; "" where the text is over."""
        if self._at < len(self._chunk) or (yield from self.more()):
            return self._chunk[self._at]
        return ""

    def skip(self) -> None:
        """Read past the character that `char` told."""
        self._at += 1

    def rest(self) -> str:
        """Everything that is there, read."""
        text = self._chunk[self._at :]
        self._at = len(self._chunk)
        return text

    def take_to(self, find: Callable[[str, int], int]) -> str:
        """Read from here to the place that `find(text, place)` tells."""
        end = find(self._chunk, self._at)
        text = self._chunk[self._at : end]
        self._at = end
        return text

    def push_back(self, text: str) -> None:
        """Text that was read after the mark, if there is one, and is to be read again."""
        self._chunk = text + self._chunk[self._at :]
        self._at = self._from = 0

    def mark(self) -> None:
        """Remember this place, in place of one before."""
        self._since = []
        self._from = self._at

    def rewind(self) -> None:
        """Go back to the mark, which is gone then."""
        since = "".join([*(self._since or ()), self._chunk[self._from : self._at]])
        self._since = None
        self.push_back(since)

    def forget(self) -> None:
        """Drop the mark."""
        self._since = None

    def space(self) -> Steps[None]:
        """Read past white space."""
        while (yield from self.char()).isspace():
            self.skip()

    def match(self, text: str) -> Steps[bool]:
        """Read past `text` where it comes next; else stop at the first difference."""
        for expected in text:
            if (yield from self.char()) != expected:
                return False
            self.skip()
        return True


def until(cursor: Cursor, markers: Sequence[str], put: Callable[[str], None]) -> Steps[str]:
    """Read past the first of `markers`, which is returned; what comes before it is put.

    "" where the text ends first. Text that may be the beginning of a marker is kept back. Must not
    be used while a place is marked.
    """
    held = ""
    while True:
        held += cursor.rest()
        at, marker = _find(held, markers)
        partial = len(held) if cursor.ended else _partial(held, markers)
        if marker and at < partial:
            put(held[:at])
            cursor.push_back(held[at + len(marker) :])
            return marker
        safe = min(at, partial)
        put(held[:safe])
        held = held[safe:]
        if cursor.ended:
            put(held)
            return ""
        yield


def _find(text: str, markers: Sequence[str]) -> tuple[int, str]:
    """The place of the first marker, the longest of those that begin there."""
    found = [(text.find(marker), -len(marker), marker) for marker in markers]
    at, _, marker = min((one for one in found if one[0] >= 0), default=(len(text), 0, ""))
    return at, marker


def _partial(text: str, markers: Sequence[str]) -> int:
    """Where the longest end of the text begins that a marker may begin with."""
    longest = max(map(len, markers)) - 1
    for at in range(max(0, len(text) - longest), len(text)):
        end = text[at:]
        if any(len(marker) > len(end) and marker.startswith(end) for marker in markers):
            return at
    return len(text)
