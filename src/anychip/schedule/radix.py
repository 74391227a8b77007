"""The prefix cache: a radix tree whose edges are whole pages of tokens.

Draw it so: a root per namespace; a node is a run of tokens and the pages that hold their KV; its
children differ in their first page. Invariants:

* a lock on a node locks its ancestors, so an unlocked node has no locked descendant and
  everything unlocked can be evicted, leaves first, in the order of a policy (eviction.py);
* splitting a node makes a new parent and leaves the old object as the tail, so who holds a node
  still holds the same tokens; both halves keep what is known of the node's use;
* `evictable` and `locked` are the pages of unlocked and locked nodes at every moment.

Tokens and pages are arrays and not lists: the cycle collector would walk a cached million of
list elements, which takes longer than a step.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence

from . import eviction
from .eviction import Policy, least_recently_used

Key = tuple[int, ...]
Entry = tuple[eviction.Key, int, "RadixNode"]

UNUSED = -(2**63)
"""Below any request's priority."""


class RadixNode:
    """A run of whole pages. `lock` counts the holders of this node and of those below it.

    uses: requests that found these pages or made them. priority: the highest of theirs.
    """

    __slots__ = (
        "children",
        "last_used",
        "lock",
        "namespace",
        "pages",
        "parent",
        "priority",
        "queued",
        "tokens",
        "uses",
    )

    def __init__(self, parent: RadixNode | None, tokens: array[int], pages: array[int]) -> None:
        self.parent = parent
        self.namespace: str = "" if parent is None else parent.namespace
        self.tokens = tokens
        self.pages = pages
        self.children: dict[Key, RadixNode] = {}
        self.lock = 0
        self.last_used = 0
        self.uses = 0
        self.priority = UNUSED
        self.queued = False  # whether the eviction heap has an entry for it

    @property
    def is_evictable_leaf(self) -> bool:
        """Whether its pages may be taken now."""
        return self.lock == 0 and not self.children and self.parent is not None


class RadixTree:
    """Finds, keeps and evicts cached prefixes. Time is a counter, never a clock."""

    def __init__(self, page_size: int, policy: Policy = least_recently_used) -> None:
        self.page_size = page_size
        self.policy = policy
        self.evictable = 0
        self.locked = 0
        self._roots: dict[str, RadixNode] = {}
        self._heap: list[Entry] = []
        self._ticks = 0
        self._entries = 0

    def root(self, namespace: str) -> RadixNode:
        """Return the namespace's root; it lives while something is under it or holds it."""
        root = self._roots.get(namespace)
        if root is None:
            root = RadixNode(None, array("i"), array("i"))
            root.namespace = namespace
            self._roots[namespace] = root
        return root

    def match(self, namespace: str, tokens: Sequence[int]) -> tuple[RadixNode, list[int]]:
        """Return the end of the longest cached prefix of whole pages, and its pages.

        Lock the node before anything else happens to the tree. The caller cuts `tokens` so that
        at least one token stays to be computed.
        """
        return self._walk(self.root(namespace), array("i", tokens))

    def cached_tokens(self, namespace: str, tokens: array[int]) -> int:
        """Return the length of what `match` would find. Splits and touches nothing."""
        node = self._roots.get(namespace)
        found, whole = 0, len(tokens) // self.page_size * self.page_size
        while node is not None and found < whole:
            node = node.children.get(self._key(tokens, found))
            if node is not None:
                common = _common(node.tokens, tokens, found) // self.page_size * self.page_size
                found += common
                if common < len(node.tokens):
                    break
        return found

    def insert(
        self, node: RadixNode, tokens: Sequence[int], pages: Sequence[int]
    ) -> tuple[RadixNode, list[int]]:
        """Continue the path of `node` by whole pages of tokens.

        Returns the path's new end and the pages that the tree had for the first of these tokens
        already: as many of the caller's first pages are duplicates and stay the caller's; the
        tree now owns the others.
        """
        run = array("i", tokens)
        node, known = self._walk(node, run)
        if len(known) < len(pages):
            rest = array("i", pages[len(known) :])
            node = self._grow(node, run[len(known) * self.page_size :], rest)
        return node, known

    def lock(self, node: RadixNode, *, below: RadixNode | None = None) -> None:
        """Hold a path. With `below`, its part down to that node is the caller's already."""
        self._ticks += 1
        step: RadixNode | None = node
        while step is not None and step is not below:
            if step.lock == 0:
                self.evictable -= len(step.pages)
                self.locked += len(step.pages)
            step.lock += 1
            step.last_used = self._ticks
            step = step.parent

    def use(self, node: RadixNode, priority: int, *, below: RadixNode | None = None) -> None:
        """Count a request on a path. With `below`, it is counted down to that node already."""
        step: RadixNode | None = node
        while step is not None and step is not below:
            step.priority = max(step.priority, priority)
            step.uses += 1
            step = step.parent

    def unlock(self, node: RadixNode) -> None:
        """Let go of a path; what nobody holds any more can be evicted."""
        self._ticks += 1
        step: RadixNode | None = node
        while step is not None:
            step.lock -= 1
            step.last_used = self._ticks
            if step.lock == 0:
                self.evictable += len(step.pages)
                self.locked -= len(step.pages)
                self._became_free(step)
            step = step.parent

    def evict(self, count: int) -> list[int]:
        """Take up to `count` pages from unlocked leaves in the policy's order, tails first."""
        freed: list[int] = []
        while len(freed) < count:
            leaf = self._first_leaf()
            if leaf is None:
                break
            self._trim(leaf, count - len(freed), freed)
        self.evictable -= len(freed)
        return freed

    def drop(self, node: RadixNode) -> list[int]:
        """Take out the end of a path, from `node` up to where somebody holds or continues it.

        Returns the pages, which the tree no longer owns.
        """
        freed: list[int] = []
        while node.is_evictable_leaf:
            freed.extend(node.pages)
            node = self._cut_off(node)
        self.evictable -= len(freed)
        self._heap = [entry for entry in self._heap if entry[2].parent is not None]
        heapq.heapify(self._heap)
        return freed

    def clear(self) -> list[int]:
        """Evict all that is unlocked and return its pages."""
        return self.evict(self.evictable)

    def nodes(self) -> Iterator[RadixNode]:
        """Go through every node, roots included, for checks."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def entries(self) -> list[tuple[eviction.Key, RadixNode]]:
        """Return what the eviction heap has, with the key of the time when it was put in."""
        return [(key, node) for key, _, node in self._heap]

    def _key(self, tokens: array[int], start: int = 0) -> Key:
        return tuple(tokens[start : start + self.page_size])

    def _walk(self, node: RadixNode, tokens: array[int]) -> tuple[RadixNode, list[int]]:
        self._ticks += 1
        pages: list[int] = []
        whole = len(tokens) // self.page_size
        while len(pages) < whole:
            start = len(pages) * self.page_size
            child = node.children.get(self._key(tokens, start))
            if child is None:
                break
            common = _common(child.tokens, tokens, start) // self.page_size
            if common < len(child.pages):
                child = self._split(child, common)
            child.last_used = self._ticks
            pages.extend(child.pages)
            node = child
        return node, pages

    def _split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut off the first `at` pages into a new parent and return it."""
        parent = node.parent
        assert parent is not None, "a root has no tokens to split"
        cut = at * self.page_size
        head = RadixNode(parent, node.tokens[:cut], node.pages[:at])
        head.lock = node.lock
        head.last_used = node.last_used
        head.uses = node.uses
        head.priority = node.priority
        parent.children[self._key(head.tokens)] = head
        del node.tokens[:cut]
        del node.pages[:at]
        node.parent = head
        head.children[self._key(node.tokens)] = node
        return head

    def _grow(self, node: RadixNode, tokens: array[int], pages: array[int]) -> RadixNode:
        child = RadixNode(node, tokens, pages)
        child.last_used = self._ticks
        node.children[self._key(tokens)] = child
        self.evictable += len(pages)
        self._became_free(child)
        return child

    def _became_free(self, node: RadixNode) -> None:
        if node.is_evictable_leaf and not node.queued:
            self._push(node)
        elif node.parent is None and node.lock == 0 and not node.children:
            self._roots.pop(node.namespace, None)

    def _push(self, node: RadixNode) -> None:
        self._entries += 1
        node.queued = True
        heapq.heappush(self._heap, (self.policy(node), self._entries, node))

    def _first_leaf(self) -> RadixNode | None:
        # A node has one entry at most and entries go stale, which is repaired here: the heap is
        # never longer than the tree has nodes, and a touched leaf costs nothing until evicted.
        while self._heap:
            key, _, node = self._heap[0]
            if node.is_evictable_leaf and key == self.policy(node):
                return node
            heapq.heappop(self._heap)
            node.queued = False
            if node.is_evictable_leaf:
                self._push(node)
        return None

    def _trim(self, leaf: RadixNode, count: int, freed: list[int]) -> None:
        if count < len(leaf.pages):
            freed.extend(leaf.pages[-count:])
            del leaf.pages[-count:]
            del leaf.tokens[-count * self.page_size :]
            return
        freed.extend(leaf.pages)
        heapq.heappop(self._heap)  # `_first_leaf` left it on top
        leaf.queued = False
        self._cut_off(leaf)

    def _cut_off(self, leaf: RadixNode) -> RadixNode:
        """Take a leaf away from its parent, which is returned."""
        parent = leaf.parent
        assert parent is not None, "a root is no leaf"
        del parent.children[self._key(leaf.tokens)]
        leaf.parent = None
        self._became_free(parent)
        return parent


def _common(run: array[int], tokens: array[int], start: int) -> int:
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
