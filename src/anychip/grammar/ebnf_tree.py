"""What an EBNF grammar is made of once it is read."""

from __future__ import annotations

from dataclasses import dataclass

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, eq=False)
class Text:
    """These characters, one after the other; none at all is the empty text."""

    value: str


@dataclass(frozen=True, eq=False)
class Chars:
    """One character out of these ranges of code points: sorted, apart, ends included."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Ref:
    """Another rule."""

    name: str


@dataclass(frozen=True, eq=False)
class Seq:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Alt:
    """One of these."""

    items: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """`item` at least `least` times and at most `most` (None: without end)."""

    item: Node
    least: int
    most: int | None


Node = Text | Chars | Ref | Seq | Alt | Repeat


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below."""
    if isinstance(node, Seq | Alt):
        return node.items
    return (node.item,) if isinstance(node, Repeat) else ()


def char_set(ranges: list[tuple[int, int]], *, inverted: bool = False) -> Chars:
    """The set of these ranges, or of all other characters; NUL and surrogates never belong."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if inverted:
        merged = _gaps(merged)
    return Chars(tuple(part for one in merged for part in _characters(one)))


def _gaps(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return [(before + 1, after - 1) for before, after in gaps if before + 1 <= after - 1]


def _characters(one: tuple[int, int]) -> list[tuple[int, int]]:
    low, high = max(one[0], 1), one[1]
    first, last = _SURROGATES
    parts = [(low, min(high, first - 1)), (max(low, last + 1), high)]
    return [(a, b) for a, b in parts if a <= b]
