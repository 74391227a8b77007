"""A program's moves, worked out as a text needs them and remembered within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from anychip.patterns.program import AT_LINE, INSIDE, Program

_KEPT = 1 << 14
"""Groups in remembered moves, after which they are forgotten: what a request keeps in memory."""

Groups = tuple[int, ...]
"""Sets of states, one for each beginning."""


@dataclass
class Node:
    """What is under way at a place: sets of states, one for each beginning, the earliest first.
    A state stands in the first group that reaches it alone."""

    groups: Groups
    moves: dict[str, Move] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """origins: for each group of `node` the group that it came from; -1 is a new beginning.
    origin, pattern: of the match that is complete, if any (pattern -1: none)."""

    node: Node
    origins: tuple[int, ...]
    origin: int = -1
    pattern: int = -1


class Moves:
    """The moves of one program, shared by the searches of a request."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps = 0
        """Sets of states worked out so far: what the searches cost."""
        self._nodes: dict[Groups, Node] = {}
        self._taking: dict[str, int] = {}
        self._kept = 0

    def start(self, where: int) -> Node:
        """Where nothing is under way yet."""
        first = self.program.first(where)
        return self._node((first,) if first else ())

    def move(self, node: Node, character: str) -> Move:
        """What a character leads to: a look into a table, or a pass over the node's states, of
        which there are `MAX_STATES` at most."""
        move = node.moves.get(character)
        if move is None:
            move = self._work_out(node, character)
            if self._kept > _KEPT:
                self._forget()
            node.moves[character] = move
            self._kept += 1 + len(move.node.groups)
        return move

    def _work_out(self, node: Node, character: str) -> Move:
        program, seen = self.program, 0
        found: list[tuple[int, int]] = []  # states, and the group that they came from
        origin = pattern = -1
        taking = self._takers_of(character)
        for index, states in enumerate(node.groups):
            reached = program.follow(states & taking, character)
            if pattern < 0 and (pattern := program.complete(reached)) >= 0:
                origin = index
            found.append((reached & ~seen, index))
            seen |= reached
        self.steps += len(found) + 1
        fresh = program.first(AT_LINE if character == "\n" else INSIDE)
        found.append((fresh & ~seen, -1))
        groups = tuple(states for states, _ in found if states)
        origins = tuple(index for states, index in found if states)
        return Move(self._node(groups), origins, origin, pattern)

    def _takers_of(self, character: str) -> int:
        if character not in self._taking:
            self._taking[character] = self.program.taking(character)
            self._kept += 1
        return self._taking[character]

    def _node(self, groups: Groups) -> Node:
        return self._nodes.setdefault(groups, Node(groups))

    def _forget(self) -> None:
        for node in self._nodes.values():
            node.moves.clear()
        self._nodes, self._taking = {}, {}
        self._kept = 0
