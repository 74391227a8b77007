"""Searches a stream for stop patterns, one character after the other."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.patterns.moves import Moves
from anychip.patterns.program import AT_BEGIN, INSIDE


@dataclass(frozen=True)
class Match:
    """length: characters up to here. pattern: its text."""

    length: int
    pattern: str


class PatternSearch:
    """Finds the match that ends first, and of those that end there the longest.

    The work is linear in the text, whatever the pattern: see `Moves.move`.
    """

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._at = 0
        self._node = moves.start(AT_BEGIN)
        self._begins = [0] * len(self._node.groups)

    @property
    def live(self) -> int:
        """Characters before here that may still turn out to be part of a match."""
        return self._at - self._begins[0] if self._begins else 0

    def advance(self, character: str) -> Match | None:
        """Take a character; the match that it completes."""
        move = self._moves.move(self._node, character)
        self._at += 1
        begins = [*self._begins, self._at]  # so that -1 is a beginning here
        self._node = move.node
        self._begins = [begins[origin] for origin in move.origins]
        if move.pattern < 0:
            return None
        return Match(self._at - begins[move.origin], self._moves.program.texts[move.pattern])

    def reset(self) -> None:
        """Forget what is under way; the text that comes next goes on with this one."""
        self._node = self._moves.start(INSIDE)
        self._begins = [self._at] * len(self._node.groups)
