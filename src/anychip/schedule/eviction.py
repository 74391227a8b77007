"""Which cached pages go first: a policy gives every node of the radix tree an order.

The leaf of the lowest key that nobody holds goes first. A key may rise while a node lives and
never falls, so an old entry in the tree's heap stands too far in front at worst and is put
right when its turn comes. Recency is the tree's counter of ticks; no policy looks at a clock.

A node counts each request once that found its pages or made them. Nothing is ever forgotten:
under `lfu` pages that were much used once stay until everything less used is gone, and the
protected segment of `slru` has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

Key = tuple[int, int]

PROTECTED_USES = 2
"""Under `slru` pages are protected from their second request on."""


class Usage(Protocol):
    """What a node knows of its use. priority: the highest of the requests that used it."""

    uses: int
    last_used: int
    priority: int


Policy = Callable[[Usage], Key]


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
