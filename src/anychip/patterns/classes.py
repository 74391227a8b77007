"""Which characters one place of a pattern takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Test = Callable[[str], bool]


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


KINDS: Mapping[str, Test] = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
"""`\\d`, `\\w`, `\\s` as Python's `re` reads them in a text. A capital letter is the opposite."""


@dataclass(frozen=True)
class CharSet:
    """ranges: first and last character, both included. kinds: letters of `KINDS`, or capitals.

    inverted: it takes what these do not. fold: upper and lower case are alike.
    """

    ranges: tuple[tuple[str, str], ...] = ()
    kinds: tuple[str, ...] = ()
    inverted: bool = False
    fold: bool = False

    def takes(self, character: str) -> bool:
        """Whether the place takes this character."""
        found = self._has(character)
        if not found and self.fold:
            found = any(self._has(other) for other in (character.lower(), character.upper()))
        return found != self.inverted

    def _has(self, character: str) -> bool:
        if any(first <= character <= last for first, last in self.ranges):
            return True
        return any(KINDS[k.lower()](character) != k.isupper() for k in self.kinds)
