"""Stop strings and stop patterns over streamed text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anychip.patterns.moves import Moves
from anychip.patterns.program import Program
from anychip.patterns.search import Match, PatternSearch

HELD_MOST = 4096
"""Characters that are held back at most for a pattern that may be complete later."""


@dataclass(frozen=True)
class StopResult:
    """text_to_emit: safe to send now. stopped: the stop string or pattern that ended the text, or
    None."""

    text_to_emit: str
    stopped: str | None = None


class StopChecker:
    """Finds the stop that is complete first, wherever the deltas happen to be cut.

    A stop is a string, or a match of a pattern. Of two that complete at the same character the
    longer one counts, then the string. Neither the stop nor anything after it is ever emitted;
    text that could be the beginning of one is held back, but at most `HELD_MOST` characters for a
    pattern: of a longer match the last HELD_MOST + 1 characters are cut, and what was emitted of it
    stays. The work is linear in the text.

    patterns: from `stop_patterns`. trim: False leaves the stop itself in the text, and then nothing
    is held back.
    """

    def __init__(
        self, stops: Sequence[str], patterns: Moves | None = None, *, trim: bool = True
    ) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._automata = [_Automaton(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._search = PatternSearch(patterns) if patterns is not None else None
        self._trim = trim
        self._held = ""
        self._stopped: str | None = None

    def feed(self, delta: str) -> StopResult:
        """Take the next text. After a stop, further text is dropped and the stop is repeated."""
        if self._stopped is not None:
            return StopResult("", self._stopped)
        text = self._held + delta
        for index, character in enumerate(delta, start=len(self._held)):
            stop = self._advance(character)
            if stop is not None:
                self._held, self._stopped = "", stop.pattern
                cut = stop.length if self._trim else 0
                return StopResult(text[: index + 1 - cut], stop.pattern)
        safe = len(text) - self._live()
        self._held = text[safe:]
        return StopResult(text[:safe])

    def flush(self) -> str:
        """The text held back, now that nothing can complete it to a stop."""
        held, self._held = self._held, ""
        for automaton in self._automata:
            automaton.matched = 0
        if self._search is not None:
            self._search.reset()
        return held

    def _live(self) -> int:
        """Characters at the end of the text that may be cut later."""
        if not self._trim:
            return 0
        strings = max((automaton.matched for automaton in self._automata), default=0)
        live = 0 if self._search is None else min(self._search.live, HELD_MOST)
        return max(strings, live)

    def _advance(self, character: str) -> Match | None:
        """Move everything on; the longest stop that this character completes."""
        done = [automaton.stop for automaton in self._automata if automaton.advance(character)]
        match = self._search.advance(character) if self._search is not None else None
        length = 0 if match is None else min(match.length, HELD_MOST + 1)
        if done and len(done[0]) >= length:
            return Match(len(done[0]), done[0])
        return None if match is None else Match(length, match.pattern)


def stop_patterns(patterns: Sequence[str]) -> Moves | None:
    """Patterns ready to be searched for, to be shared by the choices of a request; None for none.

    Raises PatternError (see `patterns.program`).
    """
    return Moves(Program(patterns)) if patterns else None


class _Automaton:
    """How much of one stop string the text so far ends with (`matched` characters)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = _borders(stop)

    def advance(self, character: str) -> bool:
        """Take one character; True when the stop string is complete."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._borders[self.matched - 1]
        if self.stop[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.stop)


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also a suffix."""
    borders = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = borders[length - 1]
        if stop[index] == stop[length]:
            length += 1
        borders[index] = length
    return borders
