"""The requests that wait for a slot."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from .sequence import Sequence


class WaitingQueue:
    """In order of arrival, which puts retracted requests in front of new ones.

    tokens: all that these requests have to compute, cached or not.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def add(self, sequence: Sequence) -> None:
        """Put it where its arrival belongs."""
        self._sequences.insert(self._place(sequence), sequence)
        self.tokens += len(sequence.tokens)

    def remove(self, sequence: Sequence) -> None:
        """Take it out. KeyError where it does not wait."""
        place = self._place(sequence)
        if place == len(self._sequences) or self._sequences[place] is not sequence:
            raise KeyError(sequence.request.id)
        del self._sequences[place]
        self.tokens -= len(sequence.tokens)

    def arrivals_from(self, arrival: int, most: int) -> list[int]:
        """Return the arrivals of up to `most` that wait and came then or later."""
        place = bisect_left(self._sequences, arrival, key=lambda other: other.arrival)
        return [other.arrival for other in self._sequences[place : place + most]]

    def before(self, sequence: Sequence) -> list[Sequence]:
        """Return those that wait and came earlier."""
        return self._sequences[: self._place(sequence)]

    def _place(self, sequence: Sequence) -> int:
        return bisect_left(self._sequences, sequence.arrival, key=lambda other: other.arrival)
