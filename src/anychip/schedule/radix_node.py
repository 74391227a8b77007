"""A node of the prefix tree: a run of whole pages."""

from __future__ import annotations

from array import array

Key = tuple[int, ...]
"""The first page of a node: what its parent finds it by."""

UNUSED = -(2**63)
"""Below any request's priority."""


class RadixNode:
    """A run of whole pages. `lock` counts the holders of this node and of those below it.

    uses: requests that found these pages or made them. priority: the highest of theirs.
    slots: where its pages lie in host memory, if they do. device_children: those with pages.
    state: the slot of the recurrent state behind its last token; 0: there is no snapshot of it.
    """

    __slots__ = (
        "children",
        "device_children",
        "last_used",
        "lock",
        "namespace",
        "pages",
        "parent",
        "priority",
        "slots",
        "state",
        "tokens",
        "uses",
    )

    def __init__(self, parent: RadixNode | None, tokens: array[int], pages: array[int]) -> None:
        self.parent = parent
        self.namespace: str = "" if parent is None else parent.namespace
        self.tokens = tokens
        self.pages = pages
        self.slots: array[int] = array("i")
        self.children: dict[Key, RadixNode] = {}
        self.device_children = 0
        self.lock = 0
        self.last_used = 0
        self.uses = 0
        self.state = 0
        self.priority = UNUSED

    @property
    def size(self) -> int:
        """Pages of tokens."""
        return len(self.pages) or len(self.slots)

    @property
    def is_evictable_leaf(self) -> bool:
        """Whether its pages may be taken now."""
        return self.lock == 0 and bool(self.pages) and not self.device_children and self.is_inside

    @property
    def is_host_leaf(self) -> bool:
        """Whether its slots may be taken now."""
        return self.lock == 0 and bool(self.slots) and not self.children and self.is_inside

    @property
    def is_inside(self) -> bool:
        """Whether it is a part of the tree and no root."""
        return self.parent is not None


def common_length(run: array[int], tokens: array[int], start: int) -> int:
    """Return how many leading tokens of `run` equal those of `tokens` from `start` on.

    Bisection over slices: the comparing is done in C and costs O(len(run)) altogether.
    """
    low, high = 0, min(len(run), len(tokens) - start)
    if run[:high] == tokens[start : start + high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if run[low:middle] == tokens[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low
