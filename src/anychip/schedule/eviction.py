"""Which cached pages go first: a policy gives every node of the radix tree an order.

The leaf of the lowest key that nobody holds goes first. A key may rise while a node lives and
never falls, so an old entry in the tree's heap stands too far in front at worst and is put
right when its turn comes. Recency is the tree's counter of ticks; no policy looks at a clock.

A node counts each request once that found its pages or made them. Nothing is ever forgotten:
under `lfu` pages that were much used once stay until everything less used is gone, and the
protected segment of `slru` has no bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

Key = tuple[int, int]

PROTECTED_USES = 2
"""Under `slru` pages are protected from their second request on."""


class Usage(Protocol):
    """What a node knows of its use. priority: the highest of the requests that used it."""

    uses: int
    last_used: int
    priority: int


Policy = Callable[[Usage], Key]
Node = TypeVar("Node", bound=Usage)


def least_recently_used(node: Usage) -> Key:
    """Order by the last use alone."""
    return (0, node.last_used)


def least_frequently_used(node: Usage) -> Key:
    """Order by the number of requests, then by the last use."""
    return (node.uses, node.last_used)


def segmented(node: Usage) -> Key:
    """Order those that one request used before all others, each group by the last use."""
    return (int(node.uses >= PROTECTED_USES), node.last_used)


def lowest_priority(node: Usage) -> Key:
    """Order by the priority of the requests, then by the last use."""
    return (node.priority, node.last_used)


EVICTION_POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "lru": least_recently_used,
        "lfu": least_frequently_used,
        "slru": segmented,
        "priority": lowest_priority,
    }
)
"""By the names of `--radix-eviction-policy`."""


class Candidates(Generic[Node]):
    """Nodes that may go, in a policy's order.

    A node has one entry at most and entries go stale, which is repaired as they come up: there
    are never more entries than nodes, and a node that is touched costs nothing until it goes.
    """

    def __init__(self, policy: Policy, may_go: Callable[[Node], bool]) -> None:
        self._policy, self._may_go = policy, may_go
        self._heap: list[tuple[Key, int, Node]] = []
        self._inside: set[Node] = set()
        self._added = 0

    def __contains__(self, node: Node) -> bool:
        return node in self._inside

    def add(self, node: Node) -> None:
        """Put it in, where it may go and is not in already."""
        if node not in self._inside and self._may_go(node):
            self._added += 1
            self._inside.add(node)
            heapq.heappush(self._heap, (self._policy(node), self._added, node))

    def first(self) -> Node | None:
        """Return the one that goes next, or None."""
        while self._heap:
            key, _, node = self._heap[0]
            if self._may_go(node) and key == self._policy(node):
                return node
            self._pop()
            self.add(node)
        return None

    def remove_first(self) -> None:
        """Take out what `first` returned."""
        self._pop()

    def forget(self, gone: Callable[[Node], bool]) -> None:
        """Take out all nodes that are no more."""
        self._heap = [entry for entry in self._heap if not gone(entry[2])]
        heapq.heapify(self._heap)
        self._inside = {entry[2] for entry in self._heap}

    def entries(self) -> list[tuple[Key, Node]]:
        """Return what is in, with the keys of the time when it was put in, for checks."""
        return [(key, node) for key, _, node in self._heap]

    def _pop(self) -> None:
        _, _, node = heapq.heappop(self._heap)
        self._inside.remove(node)
