"""Snapshots of recurrent state: which slots they lie in, and who may take one.

A state is as large as many pages and is worth something at one position alone, so a prefix can be
found again only where a snapshot was taken: at the end of a page, in a slot that a node of the
prefix tree holds for its end. Nothing is ever copied: the row that ends at such a position
writes its state into the snapshot's slot, and the next row reads it there and goes on in the
request's own slot. Draw it so: a slot is free, or held by a node, or `coming`: written by a row
whose step has not landed yet.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from .pages import PageAllocator
from .radix_node import RadixNode
from .sequence import Sequence


class Snapshots:
    """`count` slots behind the first `own` + 1: the sink, and one a running request.

    every: positions from one snapshot of a long sequence to the next, whole pages.
    """

    def __init__(self, own: int, count: int, every: int, page_size: int) -> None:
        self._own, self._every, self._page_size = own, every, page_size
        self._free = PageAllocator(count)
        self._held: OrderedDict[int, RadixNode] = OrderedDict()  # the least recently used first
        self._readers: Counter[int] = Counter()
        self._read: set[int] = set()  # by rows of the plan in the making
        self.taken = 0
        self.evicted = 0

    @property
    def total(self) -> int:
        """Slots of snapshots."""
        return self._free.total

    @property
    def free_count(self) -> int:
        """Slots nobody has."""
        return self._free.free_count

    def whole(self, positions: int) -> int:
        """Return how many of the first positions fill whole pages."""
        return positions // self._page_size * self._page_size

    def next_stop(self, sequence: Sequence) -> int:
        """Return where behind its planned positions a snapshot is wanted next."""
        planned = sequence.planned
        stops = [(planned // self._every + 1) * self._every]
        stops += [stop for stop in self._own_stops(sequence) if stop > planned]
        return min(stops)

    def ask(self, sequence: Sequence, position: int) -> None:
        """Somebody wants a snapshot of it at the end of a page."""
        sequence.stops.add(position)

    def place(self, sequence: Sequence, end: int) -> tuple[int, int]:
        """Return the slots that its row up to `end` reads and writes, and take it there."""
        own = 1 + sequence.slot
        source, target = sequence.state_at or own, own
        if end % self._every == 0 or end in self._own_stops(sequence):
            target = self._take() or own
        if target != own:
            sequence.coming[end] = target
        self._read.add(source)
        self.move(sequence, target)
        return source, target

    def end_plan(self) -> None:
        """The plan in the making is whole: what its rows read may be taken by the next one."""
        self._read.clear()

    def move(self, sequence: Sequence, slot: int) -> None:
        """The state of a sequence is in that slot now; 0: it has none."""
        if sequence.state_at > self._own:
            self._readers[sequence.state_at] -= 1
        if slot > self._own:
            self._readers[slot] += 1
        sequence.state_at = slot

    def find(self, sequence: Sequence, node: RadixNode) -> None:
        """It goes on from a node with a snapshot."""
        self._held.move_to_end(node.state)
        self.move(sequence, node.state)

    def landed(self, sequence: Sequence) -> int:
        """Return the first of its positions that is computed and whose snapshot is there; or 0."""
        return min((end for end in sequence.coming if end <= sequence.computed), default=0)

    def hold(self, sequence: Sequence, end: int, node: RadixNode) -> None:
        """The snapshot of a position goes to the node that ends there; it may have one already."""
        slot = sequence.coming.pop(end)
        if not node.state:
            node.state, self._held[slot] = slot, node
            return
        if sequence.state_at == slot:
            self.find(sequence, node)
        self._give_back(slot)

    def leave(self, sequence: Sequence) -> None:
        """It has no state any more, and what it was about to leave is of no use."""
        for slot in sequence.coming.values():
            self._give_back(slot)
        sequence.coming.clear()
        self.move(sequence, 0)

    def lose(self, node: RadixNode) -> None:
        """A node does not end any more where its snapshot was taken."""
        if node.state:
            slot, node.state = node.state, 0
            del self._held[slot]
            self._give_back(slot)

    def violations(self, running: list[Sequence], nodes: list[RadixNode]) -> Iterator[str]:
        """Go through what is wrong with the books."""
        held = {node.state: node for node in nodes if node.state}
        places = Counter(self._own + slot for slot in self._free.free_pages())
        places.update(node.state for node in nodes if node.state)
        places.update(slot for sequence in running for slot in sequence.coming.values())
        for slot in range(self._own + 1, self._own + self.total + 1):
            if places[slot] != 1:
                yield f"state slot {slot} is in {places[slot]} places, it has to be in one"
        if len(places) > self.total:
            yield f"{len(places)} slots of snapshots are in use, there are {self.total}"
        if held != dict(self._held) or any(not node.is_inside for node in held.values()):
            yield "the snapshots of the tree's nodes are not those that are counted"
        readers = Counter(s.state_at for s in running if s.state_at > self._own)
        if readers != +self._readers:
            yield "a snapshot that somebody goes on from may be taken"
        for sequence in running:
            yield from self._misplaced(sequence)

    def _misplaced(self, sequence: Sequence) -> Iterator[str]:
        at, name = sequence.state_at, f"request {sequence.request.id!r}"
        if at > self._own:
            coming = sequence.coming.get(sequence.planned) == at
            node = self._held.get(at)
            if not coming and (node is None or node is not sequence.node):
                yield f"{name}: its state is in a slot that is not its own"
        elif at not in (0, 1 + sequence.slot) or (at == 0 and sequence.planned > 0):
            yield f"{name}: its state is in slot {at}"
        if any(end % self._page_size for end in sequence.coming):
            yield f"{name}: a snapshot is taken inside of a page"

    def _own_stops(self, sequence: Sequence) -> Iterator[int]:
        """Its prompt's last whole page but for one token, and what was asked for."""
        yield self.whole(sequence.prompt_length - 1)
        yield from sequence.stops

    def _take(self) -> int:
        """Return a slot to be written, the least recently used one where none is free; or 0."""
        if not self._free.free_count:
            idle = (s for s in self._held if not self._readers[s] and s not in self._read)
            slot = next(idle, 0)
            if not slot:
                return 0
            self.lose(self._held[slot])
            self.evicted += 1
        self.taken += 1
        return self._own + self._free.take(1)[0]

    def _give_back(self, slot: int) -> None:
        self._free.give_back([slot - self._own])
