"""The parts of a stop pattern, and how it is read.

The dialect is that of Python's `re`, less what a search in linear time over a stream cannot do:
look-around, back-references, atomic groups and possessive repeats, `$`, `\\b`, `\\Z` (which look at
text that has not come yet). Lazy and greedy repeats are alike: a match ends as early as it can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from anychip.patterns.classes import CharSet
from anychip.patterns.errors import PatternError
from anychip.patterns.escapes import LOOKING, read_escape

DEEPEST = 20
"""Groups inside of groups."""

_CLASS_ALL = CharSet(inverted=True)
_CLASS_LINE = CharSet(ranges=(("\n", "\n"),), inverted=True)


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True)
class Begin:
    """The beginning of the text; lines: that of a line also."""

    lines: bool


@dataclass(frozen=True)
class Row:
    """One part after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Either:
    """One of several parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Repeat:
    """A part `low` to `high` times; high None: any number."""

    part: Part
    low: int
    high: int | None


Part = Chars | Begin | Row | Either | Repeat


@dataclass(frozen=True)
class Flags:
    """i: case does not count. s: a dot takes line ends. m: ^ is at every line."""

    i: bool = False
    s: bool = False
    m: bool = False


def read_pattern(pattern: str) -> Part:
    """The parts of a pattern. PatternError where it is broken or not supported."""
    return _Reader(pattern).whole()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def whole(self) -> Part:
        part = self._either(self._leading_flags())
        if self._at < len(self._text):
            self._refuse("a ')' that closes nothing")
        return part

    def _refuse(self, what: str) -> NoReturn:
        raise PatternError(f"{what} at character {self._at} of the pattern {self._text!r}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _leading_flags(self) -> Flags:
        letters, mark, _ = self._text[2:].partition(")")
        if not (self._text.startswith("(?") and mark and letters.isalpha()):
            return Flags()
        self._at = len(letters) + 3
        return self._flags(letters)

    def _flags(self, letters: str) -> Flags:
        if not letters or set(letters) - set("ism"):
            self._refuse(f"flags {letters!r}; i, s and m are known,")
        return Flags(**dict.fromkeys(letters, True))

    def _either(self, flags: Flags) -> Part:
        rows = [self._row(flags)]
        while self._take("|"):
            rows.append(self._row(flags))
        return rows[0] if len(rows) == 1 else Either(tuple(rows))

    def _row(self, flags: Flags) -> Part:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._one(flags)))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _one(self, flags: Flags) -> Part:
        if self._bounds() is not None:
            self._refuse("nothing to repeat before this repeat, which ends")
        character = self._peek()
        self._at += 1
        if character == "(":
            return self._group(flags)
        if character == "[":
            return Chars(replace(self._class(), fold=flags.i))
        if character == "\\":
            return self._escape(flags)
        if character == ".":
            return Chars(_CLASS_ALL if flags.s else _CLASS_LINE)
        return self._plain(character, flags)

    def _plain(self, character: str, flags: Flags) -> Part:
        if character == "^":
            return Begin(flags.m)
        if character == "$":
            self._refuse(LOOKING.format("$"))
        return Chars(CharSet(((character, character),), fold=flags.i))

    def _escape(self, flags: Flags) -> Part:
        if self._take("A"):
            return Begin(lines=False)
        return Chars(replace(self._escaped(in_class=False), fold=flags.i))

    def _escaped(self, *, in_class: bool) -> CharSet:
        found = read_escape(self._text, self._at, in_class=in_class)
        if isinstance(found, str):
            self._refuse(found)
        chars, self._at = found
        return chars

    def _group(self, flags: Flags) -> Part:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse(f"more than {DEEPEST} groups inside of groups")
        if self._take("?"):
            flags = self._group_head(flags)
        part = self._either(flags)
        if not self._take(")"):
            self._refuse("a group without its ')'")
        self._depth -= 1
        return Row((part,)) if isinstance(part, Begin) else part

    def _group_head(self, flags: Flags) -> Flags:
        """After `(?`: what kind of group it is."""
        if self._take(":"):
            return flags
        if self._take("P<"):
            name, mark, _ = self._text[self._at :].partition(">")
            if not (mark and name.isidentifier()):
                self._refuse("a group's name is broken")
            self._at += len(name) + 1
            return flags
        letters, mark, _ = self._text[self._at :].partition(":")
        if mark and letters.isalpha():
            self._at += len(letters) + 1
            more = self._flags(letters)
            return Flags(flags.i or more.i, flags.s or more.s, flags.m or more.m)
        self._refuse("(? with look-around, a back-reference or another extension, not supported,")

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        if isinstance(part, Begin):
            self._refuse("a beginning (^) that repeats")
        low, high = bounds
        if high is not None and high < low:
            self._refuse(f"a repeat from {low} to {high}")
        if not self._take("?") and self._peek() == "+":
            self._refuse("a possessive repeat, not supported,")
        before = self._at
        if self._bounds() is not None:
            self._at = before
            self._refuse("a repeat of a repeat")
        return Repeat(part, low, high)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The bounds of the repeat that begins here, or None."""
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return bounds
        inside, mark, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        counts = [number for number in (low, high) if number]
        digits = all(number.isascii() and number.isdecimal() for number in counts)
        if self._peek() != "{" or not mark or not digits or not (counts or comma):
            return None  # a brace that stands for itself
        self._at += len(inside) + 2
        first = int(low or 0)
        if not comma:
            return first, first
        return first, int(high) if high else None

    def _class(self) -> CharSet:
        """After `[`."""
        inverted = self._take("^")
        ranges: list[tuple[str, str]] = []
        kinds: list[str] = []
        first = True
        while first or self._peek() != "]":
            first = False
            item = self._class_item()
            if item.kinds:
                kinds.extend(item.kinds)
                continue
            low = high = item.ranges[0][0]
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._range_end(low)
            ranges.append((low, high))
        self._at += 1
        return CharSet(tuple(ranges), tuple(kinds), inverted)

    def _class_item(self) -> CharSet:
        character = self._peek()
        if not character:
            self._refuse("a [ without its ']'")
        self._at += 1
        if character == "\\":
            return self._escaped(in_class=True)
        return CharSet(((character, character),))

    def _range_end(self, low: str) -> str:
        item = self._class_item()
        if item.kinds or item.ranges[0][0] < low:
            self._refuse("a broken range in [...]")
        return item.ranges[0][0]
