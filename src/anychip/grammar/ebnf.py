"""EBNF to llguidance's dialect of Lark, meaning the same texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from anychip.grammar.ebnf_reader import read_ebnf
from anychip.grammar.ebnf_terminals import Shape, Terminal, shapes_of
from anychip.grammar.ebnf_tree import Alt, Chars, Node, Ref, Repeat, Seq, Text


def ebnf_to_lark(
    text: str, depth: int, *, start: str = "start", mark: str = "", after: str = ""
) -> str:
    """Lark rules for an EBNF grammar; `start` is its rule `root`.

    mark: begins the names of all other rules, so that several grammars may stand in one text.
    after: text that has to follow the grammar's. Raises GrammarError with line and column.
    """
    rules = read_ebnf(text, depth)
    if after:
        rules["root"] = Seq((rules["root"], Text(after)))
    return _Writer(rules, start, mark).write()


class _Writer:
    def __init__(self, rules: Mapping[str, Node], start: str, mark: str) -> None:
        self._rules = rules
        self._start = start
        self._names = {name: f"{mark}{at}_{_plain(name)}" for at, name in enumerate(rules)}
        self._mark = mark
        self._lines: list[str] = []
        self._terminals: dict[Terminal, str] = {}
        self._written: set[str] = set()

    def write(self) -> str:
        shapes = shapes_of(self._rules)
        for name, shape in shapes.items():
            left = self._start if name == "root" else self._rule(name)
            self._lines.append(f"{left}: {self._shape(shape)}")
        return "\n".join(self._lines) + "\n"

    def _rule(self, name: str) -> str:
        # A rule that refers to root goes through a name of its own where start is another's.
        return self._start if name == "root" else f"r{self._names[name]}".lower()

    def _shape(self, shape: Shape) -> str:
        if shape.terminal is not None:
            return self._terminal(shape.terminal)
        if isinstance(shape.node, Ref):
            return self._rule(shape.node.name)
        parts = [self._shape(part) for part in shape.parts]
        if isinstance(shape.node, Repeat):
            return _repeated(parts[0], shape.node)
        return _group(parts, shape.node)

    def _terminal(self, terminal: Terminal) -> str:
        if terminal not in self._terminals:
            name = f"L{self._mark.upper()}{len(self._terminals)}"
            self._terminals[terminal] = name
            body = " ".join(map(self._node, terminal.nodes))
            self._lines.append(f"{name}: {body}")
        return self._terminals[terminal]

    def _node(self, node: Node) -> str:
        """A node inside of a terminal."""
        if isinstance(node, Text | Chars):
            return literal(node.value) if isinstance(node, Text) else f"/{_class(node)}/"
        if isinstance(node, Ref):
            return self._inner_rule(node.name)
        if isinstance(node, Repeat):
            return _repeated(self._node(node.item), node)
        return _group([self._node(item) for item in node.items], node)

    def _inner_rule(self, name: str) -> str:
        terminal = f"T{self._names[name]}".upper()
        if name not in self._written:
            self._written.add(name)
            self._lines.append(f"{terminal}: {self._node(self._rules[name])}")
        return terminal


def literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)


def _group(parts: list[str], node: Node) -> str:
    """Alternatives, or parts one after the other."""
    if not parts:
        return '""'
    return "(" + (" | " if isinstance(node, Alt) else " ").join(parts) + ")"


def _repeated(inner: str, node: Repeat) -> str:
    if (node.least, node.most) in ((0, None), (1, None), (0, 1)):
        return f"({inner})" + {(0, None): "*", (1, None): "+", (0, 1): "?"}[node.least, node.most]
    if node.most == 0:
        return '""'
    most = "" if node.most is None else str(node.most)
    return f"({inner}){{{node.least},{most}}}"


def _class(node: Chars) -> str:
    def spelled(code: int) -> str:
        return f"\\x{{{code:X}}}"

    parts = (
        spelled(low) if low == high else f"{spelled(low)}-{spelled(high)}"
        for low, high in node.ranges
    )
    return "[" + "".join(parts) + "]"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name)
