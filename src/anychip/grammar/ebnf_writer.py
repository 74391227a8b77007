"""Writes the nodes of a grammar as xgrammar's EBNF."""

from __future__ import annotations

from anychip.grammar.ebnf_tree import LAST, Alt, Chars, Node, Ref, Repeat, Seq, Text, char_set
from anychip.grammar.errors import GrammarError

_UNSAFE = {
    **{ord('"'): r"\"", ord("\\"): r"\\", ord("\n"): r"\n", ord("\r"): r"\r"},
    **{ord("\t"): r"\t", ord("\b"): r"\b", ord("\f"): r"\f"},
}
"""Characters that JSON spells with a backslash, without those that it only spells by number."""
_CONTROLS, _SURROGATES = (0, 0x1F), (0xD800, 0xDFFF)
_SPECIAL = '"\\[]^-'


def written(node: Node, rules: dict[str, str] | None = None) -> str:
    """An expression for the node. rules: how each rule is called that it refers to."""
    if isinstance(node, Text):
        return quoted(node.value)
    if isinstance(node, Chars):
        return _class(node)
    if isinstance(node, Ref):
        return (rules or {})[node.name]
    if isinstance(node, Repeat):
        return _repeated(written(node.item, rules), node)
    parts = [written(item, rules) for item in node.items]
    return "(" + (" | " if isinstance(node, Alt) else " ").join(parts or ['""']) + ")"


def quoted(text: str) -> str:
    """A text as EBNF writes it."""
    return '"' + "".join(map(_spelled, map(ord, text))) + '"'


def in_json(node: Node, pointer: str | None) -> Node:
    """The node's texts as they stand in a JSON string. GrammarError where a character is needed
    that JSON can only spell by its number. The node refers to no rule."""
    if isinstance(node, Chars):
        return _json_class(node, pointer)
    if isinstance(node, Repeat):
        return Repeat(in_json(node.item, pointer), node.least, node.most)
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(in_json(item, pointer) for item in node.items))
    raise TypeError(f"a pattern is made of characters, not of {type(node).__name__}")


def _json_class(node: Chars, pointer: str | None) -> Node:
    """Characters that JSON spells as they are; where there are none, those with a backslash."""
    outside = char_set(list(node.ranges), inverted=True).ranges
    unsafe = [_CONTROLS, *((code, code) for code in _UNSAFE)]
    plain = char_set([*outside, *unsafe, _SURROGATES], inverted=True)
    if plain.ranges:
        return plain
    escaped = [code for code in _UNSAFE if any(low <= code <= high for low, high in node.ranges)]
    if not escaped:
        raise GrammarError("the pattern needs a control character, which is not generated", pointer)
    return Alt(tuple(Text(_UNSAFE[code]) for code in escaped))


def _class(node: Chars) -> str:
    """Sets that hold nearly all characters are written as what they leave out: xgrammar is faster
    with those."""
    if node.ranges and node.ranges[-1][1] == LAST:
        left_out = char_set([*node.ranges, (0, 0), _SURROGATES], inverted=True).ranges
        return "[^" + "".join(map(_range, [(0, 0), _SURROGATES, *left_out])) + "]"
    return "[" + "".join(map(_range, node.ranges)) + "]"


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return _spelled(low) if low == high else f"{_spelled(low)}-{_spelled(high)}"


def _spelled(code: int) -> str:
    plain = 0x20 <= code < 0x7F and chr(code) not in _SPECIAL
    return chr(code) if plain else f"\\U{code:08x}"


def _repeated(inner: str, node: Repeat) -> str:
    if node.most == 0:
        return '""'
    if (node.least, node.most) in ((0, None), (1, None), (0, 1)):
        return f"({inner})" + {(0, None): "*", (1, None): "+", (0, 1): "?"}[node.least, node.most]
    most = "" if node.most is None else str(node.most)
    return f"({inner}){{{node.least},{most}}}"
