"""A client's regular expressions: what needs more than an automaton is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import llguidance

from anychip.grammar.errors import GrammarError

MAX_BYTES = 64 << 10
MAX_DEPTH = 100
MAX_COUNT = 100_000

_REFUSED = (
    (re.compile(r"\(\?<?[=!]"), "look-around"),
    (re.compile(r"\(\?>"), "an atomic group"),
    (re.compile(r"\(\?\("), "a conditional"),
    (re.compile(r"\(\?(?:R|[0-9+-]|P>|&)"), "recursion"),
    (re.compile(r"\(\?P="), "a back-reference"),
    (re.compile(r"\(\?#"), "a comment"),
    (re.compile(r"\(\?[a-zA-Z-]*x"), "the verbose flag"),
    (re.compile(r"\\[1-9]|\\k[<{']|\\g[<{0-9]"), "a back-reference"),
    (re.compile(r"\\[bB]"), "a word boundary"),
    (re.compile(r"\\[ZGKXRC]"), "this escape"),
    (re.compile(r"\\c[A-Za-z]"), "a control escape"),
    (re.compile(r"(?:[*+?]|\{\d*,?\d*\})\+"), "a possessive quantifier"),
)
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def check_pattern(pattern: str, pointer: str | None = None) -> None:
    """GrammarError, naming the construct and its place, for a pattern that cannot be kept."""
    if "\0" in pattern:
        raise GrammarError("the pattern holds NUL, which cannot be generated", pointer)
    size = len(pattern.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise GrammarError(f"the pattern has {size} bytes; at most {MAX_BYTES}", pointer)
    depth = 0
    for at, character in _outside_classes(pattern):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth > MAX_DEPTH:
            raise GrammarError(f"the pattern nests deeper than {MAX_DEPTH} groups", pointer)
        _check_construct(pattern, at, pointer)
        _check_count(pattern, at, pointer)


def _check_construct(pattern: str, at: int, pointer: str | None) -> None:
    for construct, name in _REFUSED:
        found = construct.match(pattern, at)
        if found:
            raise GrammarError(
                f"the pattern uses {name} ({found[0]!r} at character {at}), which a grammar of "
                "tokens cannot follow; rewrite it without",
                pointer,
            )


def _check_count(pattern: str, at: int, pointer: str | None) -> None:
    found = _COUNT.match(pattern, at)
    counts = [int(text[:9]) for text in found.groups() if text] if found else []
    if max(counts, default=0) > MAX_COUNT:
        raise GrammarError(
            f"the pattern repeats {found[0] if found else ''} at character {at}; at most "
            f"{MAX_COUNT} times",
            pointer,
        )


def _outside_classes(pattern: str) -> Iterator[tuple[int, str]]:
    """Places where a construct may begin: not inside of `[...]`, not the escaped character."""
    at = 0
    inside = 0
    while at < len(pattern):
        character = pattern[at]
        if not inside:
            yield at, "" if character == "\\" else character
        if character == "\\":
            at += 2
            continue
        if character == "[":
            inside += 1
        elif character == "]" and inside:
            inside -= 1
        at += 1


def regex_body(pattern: str) -> str:
    """A checked pattern as it stands between slashes; \\d and \\w are ASCII, as in JavaScript."""
    body = str(llguidance.regex_to_lark(pattern, "dw"))
    return body.replace("\n", "\\n").replace("\r", "\\r")
