"""Reads a regular expression into the nodes of a grammar, for a backend that takes EBNF alone."""

from __future__ import annotations

import re

from anychip.grammar.ebnf_tree import LAST, Alt, Chars, Node, Repeat, Seq, char_set
from anychip.grammar.errors import GrammarError
from anychip.grammar.patterns import check_pattern

_NEWLINE, _DIGIT = (0x0A, 0x0A), (0x30, 0x39)
_WORD = (_DIGIT, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = (
    *((0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680)),
    *((0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_SETS = {"d": (_DIGIT,), "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "a": 0x07}
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|[xu]\{([0-9A-Fa-f]{1,6})\}")
_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")
_GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>))?")
_ONES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SET_OPERATORS = ("&&", "~~", "--")
_ANY = Repeat(char_set([(1, LAST)]), 0, None)


def read_regex(pattern: str, pointer: str | None = None, *, anywhere: bool = False) -> Node:
    """The texts that a pattern matches as a whole. GrammarError, with the character, for what is
    not read here.

    anywhere: texts in which it matches somewhere, where `^` and `$` do not say otherwise.
    """
    check_pattern(pattern, pointer)
    return _Reader(pattern, pointer).whole(anywhere)


class _Reader:
    def __init__(self, pattern: str, pointer: str | None) -> None:
        self._text = pattern
        self._pointer = pointer
        self._at = 0

    def whole(self, anywhere: bool) -> Node:
        found = [self._anchored(anywhere)]
        while self._take("|"):
            found.append(self._anchored(anywhere))
        if self._at < len(self._text):
            bracket = self._text[self._at] == ")"
            raise self._error("a bracket that nothing opened" if bracket else "more after a $")
        return _one_of(found)

    def _anchored(self, anywhere: bool) -> Node:
        """An alternative of the whole: the only place where `^` and `$` may stand."""
        before = [] if self._take("^") or not anywhere else [_ANY]
        inner = self._sequence()
        after = [] if self._take("$") or not anywhere else [_ANY]
        return Seq((*before, inner, *after)) if before or after else inner

    def _alternatives(self) -> Node:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return _one_of(found)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)$":
            items.append(self._repeated(self._item()))
        return Seq(tuple(items))

    def _item(self) -> Node:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return char_set(self._escape())
        if character in "*+?{^":
            raise self._error(f"{character!r} has nothing to act on here (write \\{character})")
        self._at += 1
        if character == ".":
            return char_set([_NEWLINE], inverted=True)
        return char_set([(ord(character),) * 2])

    def _group(self) -> Node:
        start = self._at
        found = _GROUP.match(self._text, self._at)
        if found is None or self._text.startswith("?", found.end()):
            raise self._error("a group of this kind")
        self._at = found.end()
        inner = self._alternatives()
        if not self._take(")"):
            at_end = self._at >= len(self._text)
            self._at = start if at_end else self._at
            raise self._error(
                "a group that does not end" if at_end else "an anchor inside of a group"
            )
        return inner

    def _repeated(self, item: Node) -> Node:
        character = self._text[self._at : self._at + 1]
        if character not in ("*", "+", "?", "{"):
            return item
        least, most = _ONES.get(character) or self._counts()
        self._at += character != "{"
        self._take("?")  # how much is matched first says nothing of what matches
        if self._text[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise self._error("two repetitions in a row")
        return Repeat(item, least, most)

    def _counts(self) -> tuple[int, int | None]:
        found = _COUNT.match(self._text, self._at)
        if found is None:
            raise self._error("a brace that is no repetition (write \\{)")
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if most is not None and most < least:
            raise self._error(f"{found[0]} is empty: the smaller number comes first")
        self._at = found.end()
        return least, most

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        inverted = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]") or not ranges:
            if self._at >= len(self._text):
                self._at = start
                raise self._error("a character class that does not end")
            ranges += self._range(first=not ranges)
        found = char_set(ranges, inverted=inverted)
        if not found.ranges:
            raise self._error("an empty character class")
        return found

    def _range(self, *, first: bool) -> list[tuple[int, int]]:
        """One character of a class, a range of them, or a set as `\\d`."""
        if self._text.startswith(_SET_OPERATORS, self._at):
            raise self._error("an operation on sets (write \\& or \\-)")
        low = self._class_item(first)
        if not re.match(r"-[^\]]", self._text[self._at : self._at + 2], re.DOTALL):
            return low
        if self._text.startswith(_SET_OPERATORS, self._at):
            raise self._error("an operation on sets (write \\-)")
        self._at += 1
        high = self._class_item(first=False)
        if not _single(low) or not _single(high) or high[0][0] < low[0][0]:
            raise self._error("an empty range, or one of sets")
        return [(low[0][0], high[0][0])]

    def _class_item(self, first: bool) -> list[tuple[int, int]]:
        character = self._text[self._at]
        if character == "\\":
            return self._escape()
        if character == "[" or (character == "]" and first):
            raise self._error(f"a bracket inside of a class (write \\{character})")
        self._at += 1
        return [(ord(character), ord(character))]

    def _escape(self) -> list[tuple[int, int]]:
        following = self._text[self._at + 1 : self._at + 2]
        hexadecimal = _HEX.match(self._text, self._at + 1)
        if following.lower() in _SETS and following:
            ranges = list(_SETS[following.lower()])
            self._at += 2
            inverted = char_set(ranges, inverted=True).ranges
            return list(inverted) if following.isupper() else ranges
        if hexadecimal is not None:
            code = int(next(group for group in hexadecimal.groups() if group), 16)
            end = hexadecimal.end()
        elif following in _CONTROLS:
            code, end = _CONTROLS[following], self._at + 2
        elif following and following.isascii() and not following.isalnum():
            code, end = ord(following), self._at + 2
        else:
            raise self._error(f"the escape \\{following}")
        if not 0 < code <= LAST or 0xD800 <= code <= 0xDFFF:
            raise self._error("a character that cannot be generated")
        self._at = end
        return [(code, code)]

    def _take(self, text: str) -> bool:
        there = self._text.startswith(text, self._at)
        self._at += len(text) * there
        return there

    def _error(self, what: str) -> GrammarError:
        return GrammarError(
            f"the pattern has {what} at character {self._at}, which the backend xgrammar does not "
            "read; rewrite it without",
            self._pointer,
        )


def _single(ranges: list[tuple[int, int]]) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _one_of(found: list[Node]) -> Node:
    return found[0] if len(found) == 1 else Alt(tuple(found))
