"""The prefix cache: a radix tree whose edges are whole pages of tokens.

Draw it so: a root per namespace; a node is a run of tokens and the pages that hold their KV; its
children differ in their first page. Invariants:

* a lock on a node locks its ancestors, so an unlocked node has no locked descendant and
  everything unlocked can be evicted, leaves first, in the order of a policy (eviction.py);
* splitting a node makes a new parent and leaves the old object as the tail, so who holds a node
  still holds the same tokens; both halves keep what is known of the node's use;
* `evictable` and `locked` are the pages of unlocked and locked nodes at every moment, and
  `locked_slots` the slots of locked ones;
* a snapshot of recurrent state belongs to the end of a node: it stays with the tail of a split,
  and goes where the node loses its end;
* with a tier of host memory a node has either pages or slots there, and below one with slots all
  have slots: eviction turns pages into slots from the tails up, a match turns them back.

Tokens and pages are arrays and not lists: the cycle collector would walk a cached million of
list elements, which takes longer than a step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from .eviction import Candidates, Policy, least_recently_used
from .host_tier import HostTier
from .radix_node import Key, RadixNode, common_length
from .snapshots import Snapshots


class RadixTree:
    """Finds, keeps and evicts cached prefixes. Time is a counter, never a clock.

    tier: where evicted pages are kept; None: nowhere. snapshots: of the model's recurrent state,
    without which no prefix is of use; None: it has none.
    """

    def __init__(
        self,
        page_size: int,
        policy: Policy = least_recently_used,
        tier: HostTier | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.page_size = page_size
        self.policy = policy
        self.tier = tier
        self.snapshots = snapshots
        self.evictable = 0
        self.locked = 0
        self.locked_slots = 0
        self._roots: dict[str, RadixNode] = {}
        self._ticks = 0
        self.leaves = Candidates[RadixNode](policy, lambda node: node.is_evictable_leaf)
        self.host_leaves = Candidates[RadixNode](policy, lambda node: node.is_host_leaf)

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
        at least one token stays to be computed. The end of the path may lie in host memory: its
        pages come with `load`.
        """
        node, pages, _ = self._walk(self.root(namespace), array("i", tokens))
        return node, pages

    def on_host(self, node: RadixNode) -> list[RadixNode]:
        """Return the part of a path that lies in host memory, from the top."""
        found = []
        while node.slots:
            found.append(node)
            assert node.parent is not None, "a root has no slots"
            node = node.parent
        return found[::-1]

    def load(self, path: Sequence[RadixNode], pages: Sequence[int]) -> None:
        """Give pages to a locked path that `on_host` returned, as many as it has slots."""
        assert self.tier is not None, "nothing lies in host memory"
        start = 0
        for node in path:
            given = array("i", pages[start : start + len(node.slots)])
            self.tier.load(node.slots, given)
            self._back_on_device(node, given)
            start += len(given)

    def cached_tokens(self, namespace: str, tokens: array[int]) -> int:
        """Return how much of what `match` would find is of use. Splits and touches nothing."""
        node = self._roots.get(namespace)
        found, whole = 0, len(tokens) // self.page_size * self.page_size
        useful = 0  # up to the last snapshot, where the model needs one
        while node is not None and found < whole:
            node = node.children.get(self._key(tokens, found))
            if node is not None:
                common = common_length(node.tokens, tokens, found)
                common -= common % self.page_size
                found += common
                if common < len(node.tokens):
                    break
                useful = found if node.state else useful
        return found if self.snapshots is None else useful

    def usable(self, node: RadixNode, pages: list[int]) -> tuple[RadixNode, list[int]]:
        """Return the part of a matched path that a sequence can go on from: up to a snapshot."""
        count = len(pages)
        while self.snapshots is not None and node.parent is not None and not node.state:
            count -= node.size
            node = node.parent
        return node, pages[:count]

    def insert(
        self, node: RadixNode, tokens: Sequence[int], pages: Sequence[int]
    ) -> tuple[RadixNode, list[int]]:
        """Continue the path of `node` by whole pages of tokens.

        Returns the path's new end and the pages that the tree had for the first of these tokens
        already: as many of the caller's first pages are duplicates and stay the caller's; the
        tree now owns the others. What lay in host memory takes the caller's pages.
        """
        run = array("i", tokens)
        node, known, found = self._walk(node, run)
        start = len(known)
        for step in self.on_host(node):
            given, slots = array("i", pages[start : start + len(step.slots)]), step.slots
            self._back_on_device(step, given)
            self._release(slots)
            start += len(given)
        if found < len(pages):
            rest = array("i", pages[found:])
            node = self._grow(node, run[found * self.page_size :], rest)
        return node, known

    def lock(self, node: RadixNode, *, below: RadixNode | None = None) -> None:
        """Hold a path. With `below`, its part down to that node is the caller's already."""
        self._ticks += 1
        step: RadixNode | None = node
        while step is not None and step is not below:
            if step.lock == 0:
                self.evictable -= len(step.pages)
                self.locked += len(step.pages)
                self.locked_slots += len(step.slots)
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
                self.locked_slots -= len(step.slots)
                self._became_free(step)
            step = step.parent

    def evict(self, count: int, *, keep: bool = True) -> list[int]:
        """Take up to `count` pages from unlocked leaves in the policy's order, tails first.

        keep: whether they go to host memory, where there is a tier.
        """
        freed: list[int] = []
        while len(freed) < count:
            leaf = self.leaves.first()
            if leaf is None:
                break
            if not keep or not self._save(leaf, count - len(freed), freed):
                self._trim(leaf, count - len(freed), freed)
        self.evictable -= len(freed)
        return freed

    def drop(self, node: RadixNode) -> list[int]:
        """Take out the end of a path, from `node` up to where somebody holds or continues it.

        Returns the pages, which the tree no longer owns.
        """
        freed: list[int] = []
        while node.lock == 0 and not node.children and node.is_inside:
            freed.extend(node.pages)
            self._release(node.slots)
            node = self._cut_off(node)
        self.evictable -= len(freed)
        self.leaves.forget(lambda gone: not gone.is_inside)
        self.host_leaves.forget(lambda gone: not gone.is_inside)
        return freed

    def clear(self) -> list[int]:
        """Take out all that is unlocked, host memory included, and return its pages."""
        if self.tier is not None:
            self._free_slots(self.tier, self.tier.slots.total - self.locked_slots)
        return self.evict(self.evictable, keep=False)

    def nodes(self) -> Iterator[RadixNode]:
        """Go through every node, roots included, for checks."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _key(self, tokens: array[int], start: int = 0) -> Key:
        return tuple(tokens[start : start + self.page_size])

    def _walk(self, node: RadixNode, tokens: array[int]) -> tuple[RadixNode, list[int], int]:
        """Return the end of what is there, its pages, and how many pages of tokens it has."""
        self._ticks += 1
        pages: list[int] = []
        found, whole = 0, len(tokens) // self.page_size
        while found < whole:
            start = found * self.page_size
            child = node.children.get(self._key(tokens, start))
            if child is None:
                break
            common = common_length(child.tokens, tokens, start) // self.page_size
            if common < child.size:
                child = self._split(child, common)
            child.last_used = self._ticks
            pages.extend(child.pages)
            found += child.size
            node = child
        return node, pages, found

    def _split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut off the first `at` pages into a new parent and return it."""
        parent = node.parent
        assert parent is not None, "a root has no tokens to split"
        cut = at * self.page_size
        head = RadixNode(parent, node.tokens[:cut], node.pages[:at])
        head.slots = node.slots[:at]
        head.device_children = int(bool(node.pages))
        head.lock = node.lock
        head.last_used = node.last_used
        head.uses = node.uses
        head.priority = node.priority
        parent.children[self._key(head.tokens)] = head
        del node.tokens[:cut]
        del node.pages[:at]
        del node.slots[:at]
        node.parent = head
        head.children[self._key(node.tokens)] = node
        return head

    def _grow(self, node: RadixNode, tokens: array[int], pages: array[int]) -> RadixNode:
        child = RadixNode(node, tokens, pages)
        child.last_used = self._ticks
        node.children[self._key(tokens)] = child
        node.device_children += 1
        self.evictable += len(pages)
        self._became_free(child)
        return child

    def _became_free(self, node: RadixNode) -> None:
        self.leaves.add(node)
        self.host_leaves.add(node)
        if node.parent is None and node.lock == 0 and not node.children:
            self._roots.pop(node.namespace, None)

    def _trim(self, leaf: RadixNode, count: int, freed: list[int]) -> None:
        if count < len(leaf.pages):
            self._lose_state(leaf)
            freed.extend(leaf.pages[-count:])
            del leaf.pages[-count:]
            del leaf.tokens[-count * self.page_size :]
            return
        freed.extend(leaf.pages)
        self.leaves.remove_first()
        self._cut_off(leaf)

    def _save(self, leaf: RadixNode, count: int, freed: list[int]) -> bool:
        """Move up to `count` pages of the first leaf's tail to host memory; False for no room."""
        if self.tier is None:
            return False
        count = min(count, len(leaf.pages), self.tier.slots.total - self.locked_slots)
        if count <= 0:
            return False
        self._free_slots(self.tier, count)
        self.leaves.remove_first()
        if count < len(leaf.pages):
            self._split(leaf, len(leaf.pages) - count)
        leaf.slots = array("i", self.tier.slots.take(count))
        self.tier.save(leaf.pages, leaf.slots)
        freed.extend(leaf.pages)
        leaf.pages = array("i")
        parent = leaf.parent
        assert parent is not None, "a root is no leaf"
        parent.device_children -= 1
        self._became_free(leaf)
        self._became_free(parent)
        return True

    def _free_slots(self, tier: HostTier, count: int) -> None:
        """See to it that so many slots are free; so many are not locked."""
        while tier.slots.free_count < count:
            leaf = self.host_leaves.first()
            assert leaf is not None, "unlocked slots are a leaf's, or behind one"
            missing = count - tier.slots.free_count
            self._release(leaf.slots[-missing:])
            if missing < len(leaf.slots):
                del leaf.slots[-missing:]
                del leaf.tokens[-missing * self.page_size :]
            else:
                self.host_leaves.remove_first()
                self._cut_off(leaf)

    def _release(self, slots: Sequence[int]) -> None:
        if self.tier is not None:
            self.tier.slots.give_back(slots)

    def _back_on_device(self, node: RadixNode, pages: array[int]) -> None:
        """Exchange slots, which the caller gives back, for pages."""
        assert node.parent is not None, "a root has no slots"
        node.parent.device_children += 1
        if node.lock:
            self.locked_slots -= len(node.slots)
            self.locked += len(pages)
        else:
            self.evictable += len(pages)
        node.pages, node.slots = pages, array("i")
        self._became_free(node)

    def _cut_off(self, leaf: RadixNode) -> RadixNode:
        """Take a leaf away from its parent, which is returned."""
        parent = leaf.parent
        assert parent is not None, "a root is no leaf"
        self._lose_state(leaf)
        del parent.children[self._key(leaf.tokens)]
        parent.device_children -= bool(leaf.pages)
        leaf.parent = None
        self._became_free(parent)
        return parent

    def _lose_state(self, node: RadixNode) -> None:
        if self.snapshots is not None:
            self.snapshots.lose(node)
