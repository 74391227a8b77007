"""What must hold after every step. A violation is a sentence; finding one changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from .radix import RadixTree
from .radix_node import RadixNode
from .sequence import Sequence
from .state import State


def violations(state: State) -> list[str]:
    """Return everything that is wrong with the books; costs O(pages + running)."""
    found = [*_pages(state), *_counts(state), *_places(state), *_tables(state)]
    tree = state.store.tree
    if tree:
        found += [*_locks(state, tree), *_tree(tree), *_tier(tree), *_slots(tree)]
        if tree.snapshots:
            found += tree.snapshots.violations(state.running(), list(tree.nodes()))
    return found


def _owned(state: State) -> Iterator[int]:
    for sequence in state.running():
        yield from sequence.pages[sequence.shared :]


def _cached(state: State) -> Iterator[int]:
    if state.store.tree:
        for node in state.store.tree.nodes():
            yield from node.pages


def _pages(state: State) -> Iterator[str]:
    places = Counter([*state.store.allocator.free_pages(), *_cached(state), *_owned(state)])
    for page in range(1, state.limits.pages + 1):
        if places[page] != 1:
            yield f"page {page} is in {places[page]} places, it has to be in one"
    for page in places:
        if not 1 <= page <= state.limits.pages:
            yield f"page {page} does not exist"


def _counts(state: State) -> Iterator[str]:
    store = state.store
    held = sum(1 for _ in _owned(state)) + (store.tree.locked if store.tree else 0)
    free, cached = store.allocator.free_count, store.evictable
    if free + cached + held != state.limits.pages:
        yield f"free {free} + cached {cached} + held {held} is not {state.limits.pages} pages"


def _places(state: State) -> Iterator[str]:
    running, queued = state.running(), list(state.queue)
    if Counter(s.request.id for s in running + queued) != Counter(state.by_id.keys()):
        yield "the requests by id are not those that run and wait, each once"
    if sorted([*state.free_slots, *(s.slot for s in running)]) != list(range(state.slots)):
        yield "a slot is lost or used twice"
    for sequence in queued:
        if sequence.slot != -1 or sequence.pages or sequence.node:
            yield f"request {sequence.request.id!r} waits but holds something"
    if state.queue.tokens != sum(len(sequence.tokens) for sequence in queued):
        yield f"{state.queue.tokens} tokens are counted as waiting"
    if any(a.arrival >= b.arrival for a, b in pairwise(queued)):
        yield "the queue is out of order"


def _tables(state: State) -> Iterator[str]:
    size = state.limits.page_size
    for sequence in state.running():
        name, told = f"request {sequence.request.id!r}", sequence.dirty_from
        if state.tables[sequence.slot][:told] != sequence.pages[:told]:
            yield f"{name}: the plans told another page table than its own"
        if sequence.planned > len(sequence.pages) * size:
            yield f"{name}: steps in flight compute {sequence.planned} positions, it has no page"
        if not sequence.shared * size <= sequence.computed <= len(sequence.pages) * size:
            yield (
                f"{name}: {sequence.computed} positions computed, {len(sequence.pages)} pages "
                f"of {size}, {sequence.shared} of them shared"
            )
        if sequence.computed >= len(sequence.tokens):
            yield f"{name}: nothing left to compute, yet it runs"


def _path(sequence: Sequence) -> list[RadixNode]:
    path, node = [], sequence.node
    while node is not None:
        path.append(node)
        node = node.parent
    return path[::-1]


def _locks(state: State, tree: RadixTree) -> Iterator[str]:
    expected: Counter[int] = Counter()
    for sequence in state.running():
        path = _path(sequence)
        expected.update(id(node) for node in path)
        pages = [page for node in path for page in node.pages]
        tokens = [token for node in path for token in node.tokens]
        if pages != sequence.pages[: sequence.shared]:
            yield f"request {sequence.request.id!r}: its shared pages are not those it locked"
        if tokens != sequence.tokens[: len(tokens)].tolist():
            yield f"request {sequence.request.id!r}: the prefix it locked has other tokens"
        if path and path[0].namespace != sequence.request.namespace:
            yield f"request {sequence.request.id!r}: locked in a foreign namespace"
    actual = Counter({id(node): node.lock for node in tree.nodes() if node.lock})
    if actual != expected:
        yield f"locks in the tree: {actual.total()}, held by requests: {expected.total()}"


def _tree(tree: RadixTree) -> Iterator[str]:
    evictable = locked = 0
    for node in tree.nodes():
        evictable += len(node.pages) if node.lock == 0 else 0
        locked += len(node.pages) if node.lock else 0
        if len(node.tokens) != node.size * tree.page_size:
            yield f"a node has {len(node.tokens)} tokens on {len(node.pages)} pages"
        if node.is_evictable_leaf and node not in tree.leaves:
            yield "an evictable leaf would never be evicted"
        if node.is_host_leaf and node not in tree.host_leaves:
            yield "a leaf in host memory would never be evicted"
        for key, child in node.children.items():
            if child.parent is not node or tuple(child.tokens[: tree.page_size]) != key:
                yield "a child does not fit its place"
            if child.lock > node.lock:
                yield "a node is locked more often than its parent"
    entries = [*tree.leaves.entries(), *tree.host_leaves.entries()]
    if any(key > tree.policy(node) for key, node in entries):
        yield "a node would be evicted later than the policy says"
    if (evictable, locked) != (tree.evictable, tree.locked):
        yield (
            f"the tree has {evictable} evictable and {locked} locked pages, "
            f"it counts {tree.evictable} and {tree.locked}"
        )


def _tier(tree: RadixTree) -> Iterator[str]:
    for node in tree.nodes():
        if node.pages and node.slots:
            yield "a node lies in the cache and in host memory"
        if node.lock and node.slots:
            yield "a node in host memory is held between steps"
        on_device = sum(bool(child.pages) for child in node.children.values())
        if on_device != node.device_children:
            yield f"{on_device} children of a node have pages, it counts {node.device_children}"
        if node.slots and on_device:
            yield "a page lies in the cache behind one in host memory"


def _slots(tree: RadixTree) -> Iterator[str]:
    places = Counter(slot for node in tree.nodes() for slot in node.slots)
    total = 0
    if tree.tier:
        places.update(tree.tier.slots.free_pages())
        total = tree.tier.slots.total
    for slot in range(1, total + 1):
        if places[slot] != 1:
            yield f"host slot {slot} is in {places[slot]} places, it has to be in one"
    if len(places) > total:
        yield f"{len(places)} host slots are in use, there are {total}"
    held = sum(len(node.slots) for node in tree.nodes() if node.lock)
    if held != tree.locked_slots:
        yield f"{held} slots of host memory are locked, the tree counts {tree.locked_slots}"
