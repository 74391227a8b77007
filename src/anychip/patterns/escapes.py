"""What follows a backslash in a stop pattern."""

from __future__ import annotations

from anychip.patterns.classes import KINDS, CharSet

LOOKING = "{}: it looks at text that has not come yet, which is not supported,"

_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CODES = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")


def read_escape(text: str, at: int, *, in_class: bool) -> tuple[CharSet, int] | str:
    """What the escape at `at`, after its backslash, takes and where it ends; else what is wrong."""
    letter = text[at : at + 1]
    if letter.lower() in KINDS and letter:
        return CharSet(kinds=(letter,)), at + 1
    if letter in _CODES and letter:
        return _code(text, at)
    if letter in _CONTROL:
        return _single(_CONTROL[letter]), at + 1
    if letter == "b" and in_class:
        return _single("\b"), at + 1
    wrong = _wrong(letter)
    return wrong or (_single(letter), at + 1)


def _single(character: str) -> CharSet:
    return CharSet(((character, character),))


def _wrong(letter: str) -> str | None:
    if not letter:
        return "a backslash at the end"
    if letter in ("b", "B", "Z", "z"):
        return LOOKING.format("\\" + letter)
    if letter.isascii() and letter.isdigit():
        return "a back-reference or an octal number, not supported (write \\x..),"
    if letter.isascii() and letter.isalpha():
        return f"the unknown escape \\{letter}"
    return None


def _code(text: str, at: int) -> tuple[CharSet, int] | str:
    end = at + 1 + _CODES[text[at]]
    digits = text[at + 1 : end]
    if len(digits) != end - at - 1 or set(digits) - _HEX:
        return f"\\{text[at]} without its {end - at - 1} hexadecimal digits"
    if int(digits, 16) > 0x10FFFF:
        return f"\\{text[at]}{digits}, which is no character,"
    return _single(chr(int(digits, 16))), end
