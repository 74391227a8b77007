"""Structural tags in xgrammar's EBNF.

Not xgrammar's own: there, a special token's name is text, and not the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.grammar import structural_fields as fields
from anychip.grammar.ebnf_reader import read_ebnf
from anychip.grammar.ebnf_tree import LAST, Repeat, char_set
from anychip.grammar.ebnf_writer import quoted, written
from anychip.grammar.errors import GrammarError, step
from anychip.grammar.regex_reader import read_regex
from anychip.grammar.structural import TagWriter
from anychip.grammar.xgrammar_json import json_rules, renamed

ANY_TEXT = written(Repeat(char_set([(1, LAST)]), 0, None))
_LONGEST = 512
"""Characters of the texts that end free text, all together: each costs a rule."""


class XgrammarTags(TagWriter):
    """Free text runs through an automaton that knows how much of which text was seen."""

    def source(self, start: str) -> str:
        """As in TagWriter, in xgrammar's EBNF."""
        return "\n".join([f"root ::= {start}", *self._lines]) + "\n"

    def _json(self, schema: Any, pointer: str) -> str:
        mark = self._reserve("j") + "_"
        try:
            self._lines.append(renamed(json_rules(schema, self._any_whitespace), mark))
        except GrammarError as error:
            raise error.within(pointer) from error
        return f" {mark}root"

    def _free(self) -> str:
        return ANY_TEXT

    def _text_until(self, text: str, pointer: str) -> str:
        parts = self._parts(text)
        if parts == [text]:
            return self._until({text: '""'})
        return ANY_TEXT + self._joined(parts)

    def _grammar(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        text = fields.text_of(value, "grammar", pointer)
        mark = self._reserve("g") + "_"
        try:
            self._lines.append(ebnf_rules(text, self._limits.depth, mark))
        except GrammarError as error:
            raise error.within(step(pointer, "grammar")) from error
        return f"{mark}root" + self._one_of(after)

    def _regex(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        pattern = fields.text_of(value, "pattern", pointer)
        return written(read_regex(pattern, step(pointer, "pattern"))) + self._one_of(after)

    def _joined(self, parts: list[str | int]) -> str:
        return "".join(
            " " + (quoted(part) if isinstance(part, str) else f"Token({part})") for part in parts
        )

    def _rule(self, body: str, option: str = "") -> str:
        name = self._reserve("s")
        self._lines.append(f"{name} ::= {body}")
        return name

    def _free_until(self, ways: Mapping[str, list[str]], *, stop: bool, first: str) -> str:
        loop = self._reserve("f")
        follows = "" if stop else f" {loop}"
        texts: dict[str, str] = {}
        others: list[str] = []
        for trigger, rests in ways.items():
            rest = " | ".join(rests).join("()") + follows if rests else ""
            if self._is_text(trigger):
                texts[trigger] = rest
            elif self._special(trigger) and rest:
                others.append(f"{self._special(trigger)} {rest}")
        self._until(texts, name=loop, ends=['""', *others])
        return f"{first} {loop}"

    def _until(self, done: Mapping[str, str], name: str = "", ends: Sequence[str] = ()) -> str:
        """A rule: any text up to the first of these texts, then what stands beside it in `done`,
        where that is nothing the text cannot go on. ends: what may follow at any place."""
        if sum(map(len, done)) > _LONGEST:
            raise GrammarError(f"the texts that end free text have more than {_LONGEST} characters")
        name = name or self._reserve("f")
        seen = sorted({text[:end] for text in done for end in range(len(text))} | {""})
        names = {one: f"{name}_{at}" if one else name for at, one in enumerate(seen)}
        alphabet = sorted(set("".join(done)))
        others = char_set([(ord(c), ord(c)) for c in alphabet], inverted=True)
        for one in seen:
            ways = [*ends, f"{written(others)} {name}"]
            for character in alphabet:
                follows = _next(one + character, done, names)
                ways += [f"{quoted(character)} {follows}"] if follows else []
            self._lines.append(f"{names[one]} ::= {' | '.join(ways)}")
        return name

    def _reserve(self, letter: str) -> str:
        """A name that no other rule has."""
        self._lines.append("")
        return self._name(letter)


def _next(seen: str, done: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Where the automaton goes once it has seen this: the longest end of it that begins a text."""
    for start in range(len(seen)):
        if seen[start:] in done:
            return done[seen[start:]]
    return next(names[seen[start:]] for start in range(len(seen) + 1) if seen[start:] in names)


def ebnf_rules(text: str, depth: int, mark: str) -> str:
    """A client's EBNF, its rules named `mark` and a number, its root `mark` and root."""
    rules = read_ebnf(text, depth)
    names = {name: mark + (name if name == "root" else f"r{at}") for at, name in enumerate(rules)}
    return "\n".join(f"{names[name]} ::= {written(node, names)}" for name, node in rules.items())
