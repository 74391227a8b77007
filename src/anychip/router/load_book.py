"""What each worker has to do: the one place where it is written down.

A call is entered when it goes to a worker and struck out when it is over there, by nobody else and
by nothing else: no check of a worker's health, and no statistics of its own, touch a line. So
figures never drift: sum of the lines = calls in flight, at any moment.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Load(NamedTuple):
    """In flight at one worker: calls, and tokens of their prompts."""

    calls: int
    tokens: int


class LoadBook:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, int]] = {}
        self._calls: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._next = 0

    def begun(self, worker: str, tokens: int) -> int:
        """A call with a prompt of so many tokens goes to the worker; the number of its line."""
        self._next += 1
        self._open[self._next] = (worker, tokens)
        self._calls[worker] += 1
        self._tokens[worker] += tokens
        return self._next

    def ended(self, line: int) -> None:
        """The call is over there. KeyError for a line that was struck out before."""
        worker, tokens = self._open.pop(line)
        self._calls[worker] -= 1
        self._tokens[worker] -= tokens
        if not self._calls[worker]:  # workers come and go; their names must not pile up
            del self._calls[worker], self._tokens[worker]

    def of(self, worker: str) -> Load:
        """What the worker has to do."""
        return Load(self._calls[worker], self._tokens[worker])

    def check(self) -> None:
        """AssertionError where the sums are not those of the open lines."""
        calls: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for worker, count in self._open.values():
            calls[worker] += 1
            tokens[worker] += count
        assert calls == self._calls, (calls, self._calls)
        assert all(tokens[name] == self._tokens[name] for name in calls), (tokens, self._tokens)
