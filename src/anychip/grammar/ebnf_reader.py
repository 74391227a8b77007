"""Reads EBNF as it is written for llama.cpp (GBNF) and for xgrammar."""

from __future__ import annotations

import difflib
import re

from anychip.grammar.ebnf_tree import (
    LAST,
    Alt,
    Chars,
    Node,
    Ref,
    Repeat,
    Seq,
    Text,
    char_set,
    children,
)
from anychip.grammar.errors import GrammarError

MAX_REPEAT = 100_000

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_DEFINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*::=")
_COUNTS = re.compile(r"\{\s*(\d{0,9})\s*(,?)\s*(\d{0,9})\s*\}")
_HEX = re.compile(
    r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|"
    r"\\u\{([0-9A-Fa-f]{1,6})\}"
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "b": "\b"}
_ITSELF = "\\\"'[]-^/. "
_ONES = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MACROS = ("TagDispatch", "TokenTagDispatch", "Token", "TokenSet", "ExcludeToken", "AnyTokens")


def read_ebnf(text: str, depth: int) -> dict[str, Node]:
    """The rules that `root` needs, in their order. GrammarError, with line and column, for what
    cannot be read, is not supported, or could never be completed."""
    rules = _Reader(text, depth).rules()
    if "root" not in rules:
        raise GrammarError(f"the grammar has no rule named root (it has {', '.join(rules):.200})")
    needed = _needed(rules)
    _check_productive(needed)
    return needed


class _Reader:
    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._depth = depth
        self._at = 0

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip()
        while self._at < len(self._text):
            name = self._match(_NAME)
            if name is None or not self._match(_DEFINES):
                raise self._error("expected a rule: name ::= ...")
            if name in rules:
                raise self._error(f"the rule {name} is defined twice")
            rules[name] = self._alternatives(0)
            self._skip()
        if not rules:
            raise GrammarError("the grammar has no rule; write root ::= ...")
        return rules

    def _alternatives(self, depth: int) -> Node:
        if depth > self._depth:
            raise self._error(f"groups nest deeper than {self._depth}")
        found = [self._sequence(depth)]
        while self._take("|"):
            found.append(self._sequence(depth))
        return found[0] if len(found) == 1 else Alt(tuple(found))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while (item := self._item(depth)) is not None:
            items.append(self._repeated(item))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _item(self, depth: int) -> Node | None:
        self._skip()
        if self._text.startswith("(=", self._at):
            raise self._error("look-ahead (= ...) is not supported")
        if self._take("("):
            inner = self._alternatives(depth + 1)
            if not self._take(")"):
                raise self._error("expected )")
            return inner
        character = self._text[self._at : self._at + 1]
        if character in ('"', "'") and character:
            return self._literal(character)
        if character == "[":
            return self._class()
        if self._take("."):
            return char_set([(1, LAST)])
        return self._reference()

    def _reference(self) -> Node | None:
        """A rule's name; None where something else follows, or the next rule begins."""
        found = _NAME.match(self._text, self._at)
        if found is None or _DEFINES.match(self._text, found.end()):
            self._check_end_of_sequence()
            return None
        if found[0] in _MACROS and self._text.startswith("(", found.end()):
            raise self._error(f"{found[0]}(...) is not supported; use a structural tag")
        self._at = found.end()
        return Ref(found[0])

    def _check_end_of_sequence(self) -> None:
        following = self._text[self._at : self._at + 1]
        if following and following not in "|)" and not _NAME.match(self._text, self._at):
            known = {"<": "tokens by name or number are not supported", "!": "so is their negation"}
            raise self._error(known.get(following, f"{following!r} is not expected here"))

    def _repeated(self, item: Node) -> Node:
        self._skip_in_line()
        while self._text[self._at : self._at + 1] in ("*", "+", "?", "{"):
            item = self._one_repeat(item)
            self._skip_in_line()
        return item

    def _one_repeat(self, item: Node) -> Node:
        counts = _ONES.get(self._text[self._at])
        if counts is not None:
            self._at += 1
            return Repeat(item, *counts)
        found = _COUNTS.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            raise self._error("expected a repetition: {m}, {m,}, {,n} or {m,n}")
        least = int(found[1] or 0)
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise self._error(f"{found[0]}: from 0 to {MAX_REPEAT}, the smaller number first")
        self._at = found.end()
        return Repeat(item, least, most)

    def _literal(self, quote: str) -> Text:
        start = self._at
        self._at += 1
        out: list[str] = []
        while True:
            plain, value = self._character(start, "text")
            if plain and value == quote:
                return Text("".join(out))
            if value == "\0":
                raise self._error("NUL cannot be generated")
            out.append(value)

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        inverted = self._text.startswith("^", self._at)
        self._at += inverted
        ranges: list[tuple[int, int]] = []
        while True:
            plain, low = self._character(start, "character class")
            if plain and low == "]":
                break
            high = low
            if re.match(r"-[^\]]", self._text[self._at : self._at + 2], re.DOTALL):
                self._at += 1
                _, high = self._character(start, "character class")
            if high < low:
                raise self._error(f"the range {low!r} to {high!r} is empty")
            ranges.append((ord(low), ord(high)))
        found = char_set(ranges, inverted=inverted)
        if not found.ranges:
            raise self._error("the character class is empty")
        return found

    def _character(self, start: int, what: str) -> tuple[bool, str]:
        """One character of a text or a class, and whether it stands there without a backslash."""
        if self._at >= len(self._text):
            self._at = start
            raise self._error(f"the {what} that begins here does not end")
        if self._text[self._at] != "\\":
            self._at += 1
            return True, self._text[self._at - 1]
        found = _HEX.match(self._text, self._at)
        following = self._text[self._at + 1 : self._at + 2]
        if found is not None:
            return False, self._code_point(found)
        if following not in _ESCAPES and (following not in _ITSELF or not following):
            raise self._error(f"the escape \\{following} is not known")
        self._at += 2
        return False, _ESCAPES.get(following, following)

    def _code_point(self, found: re.Match[str]) -> str:
        code = int(next(group for group in found.groups() if group), 16)
        if code > LAST or 0xD800 <= code <= 0xDFFF:
            raise self._error(f"{found[0]} is no character that can be generated")
        self._at = found.end()
        return chr(code)

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _take(self, text: str) -> bool:
        self._skip()
        there = self._text.startswith(text, self._at)
        self._at += len(text) * there
        return there

    def _skip(self) -> None:
        self._match(_BLANK)

    def _skip_in_line(self) -> None:
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1

    def _error(self, reason: str) -> GrammarError:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        return GrammarError(f"line {line}, column {column}: {reason}")


def _needed(rules: dict[str, Node]) -> dict[str, Node]:
    found: set[str] = set()
    todo = ["root"]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        if name not in rules:
            close = difflib.get_close_matches(name, rules, n=1)
            hint = f"; the nearest is {close[0]}" if close else ""
            raise GrammarError(f"there is no rule {name}{hint}")
        found.add(name)
        todo.extend(references(rules[name]))
    return {name: node for name, node in rules.items() if name in found}


def references(node: Node) -> list[str]:
    """The rules that a node refers to itself, in order."""
    found: list[str] = []
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, Ref):
            found.append(one.name)
        todo.extend(reversed(children(one)))
    return found


def _check_productive(rules: dict[str, Node]) -> None:
    """GrammarError for a rule that only leads to itself: no text would ever complete it."""
    done: set[str] = set()
    while True:
        more = {name for name, node in rules.items() if name not in done and _ends(node, done)}
        if not more:
            break
        done |= more
    endless = [name for name in rules if name not in done]
    if endless:
        raise GrammarError(f"the rule {endless[0]} never ends: each of its ways leads back to it")


def _ends(node: Node, done: set[str]) -> bool:
    if isinstance(node, Ref):
        return node.name in done
    if isinstance(node, Seq):
        return all(_ends(item, done) for item in node.items)
    if isinstance(node, Alt):
        return any(_ends(item, done) for item in node.items)
    if isinstance(node, Repeat):
        return node.least == 0 or _ends(node.item, done)
    return True
