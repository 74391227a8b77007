"""Decides which parts of an EBNF grammar are read as one terminal.

llguidance reads terminals, each as long as it gets: what another one would have begun with is
swallowed, where EBNF means every way to read the text. So a terminal is made as large as it can
be (that is fast), and cut into its parts wherever it, or one that may stand at the same place,
could swallow the beginning of what follows. Single characters swallow nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anychip.grammar.ebnf_automata import Alphabet, Automaton, Builder, Meeting, meet
from anychip.grammar.ebnf_reader import references
from anychip.grammar.ebnf_tree import Alt, Chars, Node, Ref, Repeat, Text
from anychip.grammar.errors import GrammarError

_PLACES = 1500
_ROUNDS = 60


@dataclass(frozen=True)
class Terminal:
    """Nodes that are read as one, one after the other."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Shape:
    """How a part of a rule is read. kind: terminal, ref, seq, alt or repeat."""

    kind: str
    node: Node
    parts: tuple[Shape, ...] = ()
    terminal: Terminal | None = None


def shapes_of(rules: Mapping[str, Node]) -> dict[str, Shape]:
    """How each rule that is not part of a terminal is read, `root` among them."""
    return _Cutter(rules).shapes()


class _Cutter:
    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._recursive = _recursive(rules)
        self._alphabet = Alphabet(rules)
        self._builder = Builder(rules, self._alphabet)
        self._cut: set[tuple[int, ...]] = set()
        self._letters: dict[int, tuple[Node, ...]] = {}
        self._automata: dict[Terminal, Automaton] = {}
        self._meetings: dict[tuple[Terminal, Terminal], Meeting] = {}

    def shapes(self) -> dict[str, Shape]:
        for _ in range(_ROUNDS):
            shapes = self._all_shapes()
            swallowing = set(_Places(shapes, self._automaton, self._meeting).swallowing())
            if not swallowing:
                return shapes
            self._cut |= {_key(terminal.nodes) for terminal in swallowing}
        raise GrammarError("the grammar is too ambiguous to be read in terminals; simplify it")

    def _all_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        todo = ["root"]
        while todo:
            name = todo.pop()
            if name not in shapes:
                shapes[name] = self._shape(self._rules[name])
                todo.extend(_referred(shapes[name]))
        return shapes

    def _shape(self, node: Node) -> Shape:
        if _key((node,)) not in self._cut and self._regular(node):
            return Shape("terminal", node, terminal=Terminal((node,)))
        if isinstance(node, Ref):
            return Shape("ref", node)
        if isinstance(node, Repeat):
            return Shape("repeat", node, (self._shape(node.item),))
        if isinstance(node, Alt):
            return Shape("alt", node, tuple(self._shape(item) for item in node.items))
        items = self._characters(node) if isinstance(node, Text) else getattr(node, "items", ())
        return Shape("seq", node, tuple(self._runs(items)))

    def _runs(self, items: tuple[Node, ...]) -> Iterator[Shape]:
        """Neighbours that are regular form one terminal, unless that was cut."""
        run: list[Node] = []
        for item in [*items, None]:
            if item is not None and self._regular(item):
                run.append(item)
                continue
            if len(run) > 1 and _key(tuple(run)) not in self._cut:
                yield Shape("terminal", run[0], terminal=Terminal(tuple(run)))
            else:
                yield from map(self._shape, run)
            run = []
            if item is not None:
                yield self._shape(item)

    def _characters(self, node: Text) -> tuple[Node, ...]:
        if id(node) not in self._letters:
            found = tuple(Text(character) for character in node.value)
            self._letters[id(node)] = found
            self._cut.add(_key(found))  # what was cut apart stays apart
        return self._letters[id(node)]

    def _regular(self, node: Node) -> bool:
        return not any(name in self._recursive for name in references(node))

    def _automaton(self, terminal: Terminal) -> Automaton:
        if terminal not in self._automata:
            self._automata[terminal] = self._builder.build(terminal.nodes)
        return self._automata[terminal]

    def _meeting(self, first: Terminal, second: Terminal) -> Meeting:
        pair = (first, second)
        if pair not in self._meetings:
            self._meetings[pair] = meet(
                self._automaton(first), self._automaton(second), self._alphabet
            )
        return self._meetings[pair]


def _key(nodes: tuple[Node, ...]) -> tuple[int, ...]:
    return tuple(map(id, nodes))


def _referred(shape: Shape) -> list[str]:
    if shape.kind == "ref" and isinstance(shape.node, Ref):
        return [shape.node.name]
    return [name for part in shape.parts for name in _referred(part)]


def _recursive(rules: Mapping[str, Node]) -> set[str]:
    """Rules that lead to themselves, and those that lead to such ones."""
    leads = {name: set(references(node)) for name, node in rules.items()}
    plain: set[str] = set()
    while True:
        more = {name for name, to in leads.items() if name not in plain and to <= plain}
        if not more:
            return set(rules) - plain
        plain |= more


@dataclass(frozen=True)
class _Part:
    """Of a part of a rule: may it be empty, and the places it may begin and end at (bit sets)."""

    nullable: bool
    first: int = 0
    last: int = 0


class _Places:
    """Every place of a terminal in the rules, and which place may follow which."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        automaton: Callable[[Terminal], Automaton],
        meeting: Callable[[Terminal, Terminal], Meeting],
    ) -> None:
        self._shapes = shapes
        self._automaton = automaton
        self._meeting = meeting
        self._terminals: list[Terminal] = []
        self._place_of: dict[int, int] = {}
        for shape in shapes.values():
            self._number(shape)
        self._following = [0] * len(self._terminals)
        self._rule_parts = {name: _Part(False) for name in shapes}
        self._settle()

    def swallowing(self) -> Iterator[Terminal]:
        """Terminals that may go on where one at the same place could end and be followed."""
        beside = self._beside()
        begins = [self._first_characters(place) for place in range(len(self._terminals))]
        for place, others in enumerate(beside):
            for other in _bits(others):
                meeting = self._meeting(self._terminals[place], self._terminals[other])
                if meeting.further & begins[place] and self._can_be_cut(self._terminals[other]):
                    yield self._terminals[other]

    def _can_be_cut(self, terminal: Terminal) -> bool:
        node = terminal.nodes[0]
        single = isinstance(node, Chars) or (isinstance(node, Text) and len(node.value) < 2)
        return len(terminal.nodes) > 1 or not single

    def _first_characters(self, place: int) -> int:
        found = 0
        for other in _bits(self._following[place]):
            found |= self._begin(self._terminals[other])
        return found

    def _begin(self, terminal: Terminal) -> int:
        automaton = self._automaton(terminal)
        found = -1 if automaton.too_large else 0
        for state in automaton.first:
            found |= automaton.characters[state]
        return found

    def _beside(self) -> list[int]:
        """For each place, those that may be read side by side with it."""
        beside = [0] * len(self._terminals)
        todo: list[tuple[int, int]] = []
        self._meet_all(beside, todo, self._rule_parts["root"].first, self._rule_parts["root"].first)
        while todo:
            one, other = todo.pop()
            same = one == other
            if same or self._meeting(self._terminals[one], self._terminals[other]).overlap:
                self._meet_all(beside, todo, self._following[one], self._following[other])
        return beside

    def _meet_all(
        self, beside: list[int], todo: list[tuple[int, int]], ones: int, others: int
    ) -> None:
        for one in _bits(ones):
            new = others & ~beside[one]
            beside[one] |= new
            todo.extend((one, other) for other in _bits(new))

    def _number(self, shape: Shape) -> None:
        if shape.terminal is not None:
            self._place_of[id(shape)] = len(self._terminals)
            self._terminals.append(shape.terminal)
            if len(self._terminals) > _PLACES:
                raise GrammarError(f"the grammar has more than {_PLACES} terminals; simplify it")
        for part in shape.parts:
            self._number(part)

    def _settle(self) -> None:
        """Parts of rules depend on each other; repeated until nothing changes."""
        changed = True
        while changed:
            before = (dict(self._rule_parts), list(self._following))
            for name, shape in self._shapes.items():
                self._rule_parts[name] = self._part(shape)
            changed = before != (self._rule_parts, self._following)

    def _part(self, shape: Shape) -> _Part:
        if shape.terminal is not None:
            place = 1 << self._place_of[id(shape)]
            return _Part(self._automaton(shape.terminal).nullable, place, place)
        if shape.kind == "ref" and isinstance(shape.node, Ref):
            return self._rule_parts[shape.node.name]
        parts = [self._part(part) for part in shape.parts]
        if shape.kind == "alt":
            return _one_of(parts)
        whole = _Part(True)
        for part in parts:
            whole = self._joined(whole, part)
        if shape.kind == "repeat" and isinstance(shape.node, Repeat):
            if shape.node.most is None or shape.node.most > 1:
                self._link(whole, whole)
            return _Part(whole.nullable or shape.node.least == 0, whole.first, whole.last)
        return whole

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._link(left, right)
        first = left.first | right.first if left.nullable else left.first
        last = left.last | right.last if right.nullable else right.last
        return _Part(left.nullable and right.nullable, first, last)

    def _link(self, left: _Part, right: _Part) -> None:
        for place in _bits(left.last):
            self._following[place] |= right.first


def _one_of(parts: list[_Part]) -> _Part:
    first = last = 0
    for part in parts:
        first |= part.first
        last |= part.last
    return _Part(any(part.nullable for part in parts), first, last)


def _bits(value: int) -> Iterator[int]:
    while value:
        lowest = value & -value
        yield lowest.bit_length() - 1
        value ^= lowest
