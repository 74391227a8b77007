"""Patterns as one nondeterministic automaton, bounded in size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from anychip.patterns.classes import CharSet
from anychip.patterns.errors import PatternError
from anychip.patterns.syntax import Begin, Chars, Either, Part, Repeat, read_pattern

MAX_PATTERNS = 32
MAX_PATTERN_BYTES = 256
MAX_STATES = 512
"""Of all patterns of a request together; what one character costs grows with it."""

INSIDE, AT_BEGIN, AT_LINE = range(3)
"""Where a place of the text lies: at its beginning, after a line's end, or neither."""


@dataclass
class _State:
    """chars: what it takes on the way to `then`, None for nothing. begin: only there it lets pass.
    pattern: the one that is complete here, or -1."""

    chars: CharSet | None = None
    begin: Begin | None = None
    then: list[int] = field(default_factory=list)
    pattern: int = -1


class Program:
    """The automaton of some patterns. A set of its states is an integer, bit by state.

    texts: the patterns as they were given.
    """

    def __init__(self, patterns: Sequence[str], *, may_be_empty: bool = False) -> None:
        """Raises PatternError for patterns that are too many, too long, broken, not supported, or
        that match the empty text where they may not."""
        if len(patterns) > MAX_PATTERNS:
            raise PatternError(f"{len(patterns)} patterns; at most {MAX_PATTERNS}")
        self.texts = tuple(patterns)
        self._states: list[_State] = []
        self._first: list[int] = []
        self._ends = 0
        parts = [_read(index, pattern) for index, pattern in enumerate(patterns)]
        _check_size(parts)
        for index, part in enumerate(parts):
            end = self._add(_State(pattern=index))
            self._first.append(self._build(part, end))
        if not may_be_empty:
            self._check_not_empty()
        self._reach: list[list[int]] = []
        self._takers: dict[CharSet, int] = {}
        self._tabulate()

    def first(self, where: int) -> int:
        """The states in which a match may begin."""
        return self._closure(self._first, where)

    def follow(self, states: int, character: str) -> int:
        """The states after one more character, where `states` are those that take it."""
        reach = self._reach[character == "\n"]
        reached = 0
        while states:
            lowest = states & -states
            reached |= reach[lowest.bit_length() - 1]
            states ^= lowest
        return reached

    def taking(self, character: str) -> int:
        """The states that take a character."""
        return sum(mask for chars, mask in self._takers.items() if chars.takes(character))

    def complete(self, states: int) -> int:
        """The first pattern that is complete in one of these states, or -1."""
        done = states & self._ends
        return min((self._states[state].pattern for state in _bits(done)), default=-1)

    def _closure(self, states: Iterable[int], where: int) -> int:
        """The states that are reached from these without a character: those that take one, and
        those that complete a pattern."""
        seen: set[int] = set()
        left = list(states)
        while left:
            number = left.pop()
            if number not in seen and _passes(self._states[number].begin, where):
                seen.add(number)
                if self._states[number].chars is None:
                    left.extend(self._states[number].then)
        waits = (s for s in seen if self._states[s].chars or self._states[s].pattern >= 0)
        return sum(1 << state for state in waits)

    def _tabulate(self) -> None:
        """Work out once what every character would need."""
        for where in (INSIDE, AT_LINE):
            row = [self._closure(s.then, where) if s.chars else 0 for s in self._states]
            self._reach.append(row)
        for number, state in enumerate(self._states):
            if state.chars is not None:
                self._takers[state.chars] = self._takers.get(state.chars, 0) | 1 << number
            self._ends |= (state.pattern >= 0) << number

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, part: Part, then: int) -> int:
        """Add the states of a part that leads to `then`; where it begins."""
        if isinstance(part, Chars):
            return self._add(_State(part.chars, then=[then]))
        if isinstance(part, Begin):
            return self._add(_State(begin=part, then=[then]))
        if isinstance(part, Either):
            return self._add(_State(then=[self._build(one, then) for one in part.parts]))
        if isinstance(part, Repeat):
            return self._build_repeat(part, then)
        for one in reversed(part.parts):
            then = self._build(one, then)
        return then

    def _build_repeat(self, repeat: Repeat, then: int) -> int:
        if repeat.high is None:
            loop = self._add(_State())
            self._states[loop].then = [self._build(repeat.part, loop), then]
            then = loop
        for _ in range((repeat.high or repeat.low) - repeat.low):
            then = self._add(_State(then=[self._build(repeat.part, then), then]))
        for _ in range(repeat.low):
            then = self._build(repeat.part, then)
        return then

    def _check_not_empty(self) -> None:
        for index, first in enumerate(self._first):
            for where in (INSIDE, AT_BEGIN, AT_LINE):
                reached = self._closure([first], where)
                if any(self._states[state].pattern >= 0 for state in _bits(reached)):
                    text = f"the pattern {self.texts[index]!r} matches the empty text"
                    raise PatternError(f"{text}; it must need a character", index)


def _bits(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def _passes(begin: Begin | None, where: int) -> bool:
    return begin is None or where == AT_BEGIN or (begin.lines and where == AT_LINE)


def _read(index: int, pattern: str) -> Part:
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError as error:
        code = ord(pattern[error.start])
        text = f"lone surrogate U+{code:04X} at character {error.start}"
        raise PatternError(f"the pattern is not valid Unicode: {text}", index) from error
    if size > MAX_PATTERN_BYTES:
        text = f"a pattern has {size} bytes; at most {MAX_PATTERN_BYTES}"
        raise PatternError(text, index)
    if "\0" in pattern:
        raise PatternError(f"the pattern {pattern!r} holds a NUL character", index)
    try:
        return read_pattern(pattern)
    except PatternError as error:
        raise PatternError(str(error), index) from None


def _check_size(parts: Sequence[Part]) -> None:
    total = 0
    for index, part in enumerate(parts):
        total += 1 + _size(part)
        if total > MAX_STATES:
            raise PatternError(
                f"the patterns need {total} states, repeats written out; at most {MAX_STATES}",
                index,
            )


def _size(part: Part) -> int:
    """States that a part needs."""
    if isinstance(part, Chars | Begin):
        return 1
    if isinstance(part, Repeat):
        once = _size(part.part)
        optional = 1 if part.high is None else part.high - part.low
        return part.low * once + optional * (once + 1)
    inside = sum(map(_size, part.parts))
    return inside + isinstance(part, Either)
