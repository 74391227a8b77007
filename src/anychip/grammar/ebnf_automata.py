"""Small automata of terminals: with what characters one may go on where another could end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anychip.grammar.ebnf_tree import Alt, Chars, Node, Ref, Repeat, Seq, Text, children

_STATES = 300
"""Characters of one terminal, its rules written out, that are looked at."""
_PAIRS = 20_000
"""Pairs of places of two terminals that are looked at."""


class Alphabet:
    """Classes of characters that no part of a grammar tells apart. A set of them is an integer,
    one bit a class."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        edges = {0}
        for node in _all_nodes(rules):
            for low, high in _ranges(node):
                edges |= {low, high + 1}
        self._edges = {edge: index for index, edge in enumerate(sorted(edges))}
        self.all = (1 << len(edges)) - 1

    def of(self, ranges: tuple[tuple[int, int], ...]) -> int:
        """The set of these ranges."""
        found = 0
        for low, high in ranges:
            found |= (1 << self._edges[high + 1]) - (1 << self._edges[low])
        return found


def _all_nodes(rules: Mapping[str, Node]) -> list[Node]:
    found: list[Node] = []
    todo = list(rules.values())
    while todo:
        node = todo.pop()
        found.append(node)
        todo.extend(children(node))
    return found


def _ranges(node: Node) -> tuple[tuple[int, int], ...]:
    if isinstance(node, Chars):
        return node.ranges
    if isinstance(node, Text):
        return tuple((ord(character), ord(character)) for character in set(node.value))
    return ()


@dataclass
class Automaton:
    """Glushkov's: a state is a character of the terminal. A larger language than the terminal's
    (a count is taken as any count), which is the safe side. `too_large`: it was given up."""

    characters: list[int] = field(default_factory=list)
    following: list[set[int]] = field(default_factory=list)
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    nullable: bool = False
    too_large: bool = False


@dataclass(frozen=True)
class _Part:
    nullable: bool
    first: frozenset[int]
    last: frozenset[int]


_EMPTY = _Part(True, frozenset(), frozenset())


class _TooLarge(Exception):
    """The terminal has more states than are looked at."""


class Builder:
    """Makes the automata of the terminals of one grammar."""

    def __init__(self, rules: Mapping[str, Node], alphabet: Alphabet) -> None:
        self._rules = rules
        self._alphabet = alphabet

    def build(self, nodes: tuple[Node, ...]) -> Automaton:
        """The automaton of these nodes one after the other, none of which is recursive."""
        found = Automaton()
        try:
            part = self._seq(found, nodes)
        except _TooLarge:
            return Automaton(too_large=True, nullable=self._may_be_empty(Seq(nodes)))
        found.first, found.last, found.nullable = part.first, part.last, part.nullable
        return found

    def _may_be_empty(self, node: Node) -> bool:
        if isinstance(node, Ref):
            return self._may_be_empty(self._rules[node.name])
        if isinstance(node, Text):
            return not node.value
        if isinstance(node, Seq):
            return all(self._may_be_empty(item) for item in node.items)
        if isinstance(node, Alt):
            return any(self._may_be_empty(item) for item in node.items)
        return isinstance(node, Repeat) and (node.least == 0 or self._may_be_empty(node.item))

    def _part(self, into: Automaton, node: Node) -> _Part:
        if isinstance(node, Ref):
            return self._part(into, self._rules[node.name])
        if isinstance(node, Text | Seq):
            return self._text(into, node) if isinstance(node, Text) else self._seq(into, node.items)
        if isinstance(node, Chars):
            return self._character(into, self._alphabet.of(node.ranges))
        return self._alt(into, node) if isinstance(node, Alt) else self._repeat(into, node)

    def _alt(self, into: Automaton, node: Alt) -> _Part:
        parts = [self._part(into, item) for item in node.items]
        return _Part(
            any(part.nullable for part in parts),
            frozenset().union(*(part.first for part in parts)),
            frozenset().union(*(part.last for part in parts)),
        )

    def _repeat(self, into: Automaton, node: Repeat) -> _Part:
        if node.most == 0:
            return _EMPTY
        part = self._part(into, node.item)
        if node.most is None or node.most > 1:
            _link(into, part, part)
        return _Part(part.nullable or node.least == 0, part.first, part.last)

    def _text(self, into: Automaton, node: Text) -> _Part:
        part = _EMPTY
        for character in node.value:
            code = ord(character)
            part = _joined(into, part, self._character(into, self._alphabet.of(((code, code),))))
        return part

    def _seq(self, into: Automaton, nodes: tuple[Node, ...]) -> _Part:
        part = _EMPTY
        for node in nodes:
            part = _joined(into, part, self._part(into, node))
        return part

    def _character(self, into: Automaton, characters: int) -> _Part:
        if len(into.characters) >= _STATES:
            raise _TooLarge
        into.characters.append(characters)
        into.following.append(set())
        state = frozenset({len(into.characters) - 1})
        return _Part(False, state, state)


def _joined(into: Automaton, left: _Part, right: _Part) -> _Part:
    _link(into, left, right)
    first = left.first | right.first if left.nullable else left.first
    last = left.last | right.last if right.nullable else right.last
    return _Part(left.nullable and right.nullable, first, last)


def _link(into: Automaton, left: _Part, right: _Part) -> None:
    for state in left.last:
        into.following[state] |= right.first


@dataclass(frozen=True)
class Meeting:
    """Of two terminals that are read side by side. overlap: some text is both. further: the set of
    characters with which the second may go on where the first could end."""

    overlap: bool
    further: int


def meet(first: Automaton, second: Automaton, alphabet: Alphabet) -> Meeting:
    """What happens where `first` and `second` begin at one place."""
    if first.too_large or second.too_large:
        return Meeting(True, alphabet.all)
    todo = _pairs(first, second, first.first, second.first)
    seen = set(todo)
    overlap, further = False, 0
    while todo:
        one, other = todo.pop()
        if one in first.last:
            overlap |= other in second.last
            further |= _union(second.characters, second.following[other])
        for pair in _pairs(first, second, first.following[one], second.following[other]):
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
        if len(seen) > _PAIRS:
            return Meeting(True, alphabet.all)
    return Meeting(overlap, further)


def _pairs(
    first: Automaton,
    second: Automaton,
    ones: frozenset[int] | set[int],
    others: frozenset[int] | set[int],
) -> list[tuple[int, int]]:
    return [
        (one, other)
        for one in ones
        for other in others
        if first.characters[one] & second.characters[other]
    ]


def _union(characters: list[int], states: frozenset[int] | set[int]) -> int:
    found = 0
    for state in states:
        found |= characters[state]
    return found
