"""Stop strings over streamed text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StopResult:
    """text_to_emit: safe to send now. stopped: the stop string that ended the text, or None."""

    text_to_emit: str
    stopped: str | None = None


class StopChecker:
    """Finds the stop string that is complete first, wherever the deltas happen to be cut.

    Of two that complete at the same character the longer one counts. Neither the stop string nor
    anything after it is ever emitted; text that could be the beginning of one is held back.
    Each stop string is a Knuth-Morris-Pratt automaton, so the work is linear in the text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._automata = [_Automaton(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._held = ""
        self._stopped: str | None = None

    def feed(self, delta: str) -> StopResult:
        """Take the next text. After a stop, further text is dropped and the stop is repeated."""
        if self._stopped is not None or not self._automata:
            return StopResult("" if self._stopped is not None else delta, self._stopped)
        text = self._held + delta
        for index, character in enumerate(delta, start=len(self._held)):
            stop = self._advance(character)
            if stop is not None:
                return self._stop(text[: index + 1 - len(stop)], stop)
        safe = len(text) - max(automaton.matched for automaton in self._automata)
        self._held = text[safe:]
        return StopResult(text[:safe])

    def flush(self) -> str:
        """The text held back, now that nothing can complete it to a stop string."""
        held, self._held = self._held, ""
        for automaton in self._automata:
            automaton.matched = 0
        return held

    def _advance(self, character: str) -> str | None:
        """Move every automaton on; the longest stop string that this character completes."""
        done = [automaton.stop for automaton in self._automata if automaton.advance(character)]
        return done[0] if done else None

    def _stop(self, text: str, stop: str) -> StopResult:
        self._held, self._stopped = "", stop
        return StopResult(text, stop)


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
