"""A pattern held against one short text from its beginning, as `re.match` would.

`$` may stand at the end of the pattern, or of one of its alternatives; the rest of the dialect is
that of `syntax.py`. The work is linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from anychip.patterns.program import AT_BEGIN, Program

_KEPT = 1 << 14
"""Moves that are remembered."""


class Whole:
    """One pattern. Raises PatternError for what is broken, too long or not supported."""

    def __init__(self, pattern: str) -> None:
        flags, rest = _flags(pattern)
        self._alternatives = [_Alternative(flags, each) for each in _split(rest)]

    def matches(self, text: str) -> bool:
        """Whether the text begins with a match."""
        return any(one.matches(text) for one in self._alternatives)


class _Alternative:
    def __init__(self, flags: str, pattern: str) -> None:
        bare = pattern.removesuffix("$")
        escaped = (len(bare) - len(bare.rstrip("\\"))) % 2 == 1
        self._ends = bare != pattern and not escaped
        text = flags + (bare if self._ends else pattern)
        self._program = Program((text,), may_be_empty=True)
        self._moves: dict[tuple[int, str], int] = {}

    def matches(self, text: str) -> bool:
        program = self._program
        states = program.first(AT_BEGIN)
        for character in text:
            if not self._ends and program.complete(states) >= 0:
                return True
            if not states:
                return False
            states = self._follow(states, character)
        return program.complete(states) >= 0

    def _follow(self, states: int, character: str) -> int:
        """Remembered: names of one checkpoint are much alike."""
        key = (states, character)
        if key not in self._moves:
            if len(self._moves) >= _KEPT:
                self._moves.clear()
            taking = self._program.taking(character)
            self._moves[key] = self._program.follow(states & taking, character)
        return self._moves[key]


def _flags(pattern: str) -> tuple[str, str]:
    """Flags for all of it, such as (?i), and what follows."""
    letters, mark, rest = pattern[2:].partition(")")
    if pattern.startswith("(?") and mark and letters.isalpha():
        return f"(?{letters})", rest
    return "", pattern


def _split(pattern: str) -> Iterator[str]:
    """Its alternatives: what stands between bars outside of groups and classes."""
    depth = start = at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "[":
            at = _end_of_class(pattern, at)
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            yield pattern[start:at]
            start = at + 1
        at += 1
    yield pattern[start:]


def _end_of_class(pattern: str, at: int) -> int:
    """Where the `]` of the class stands that begins here; a `]` that comes first is a character."""
    first = at = at + (2 if pattern.startswith("[^", at) else 1)
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        at += 2 if pattern[at] == "\\" else 1
    return at
