"""Pages as sequences see them: the free ones, the prefix tree's, and each sequence's own."""

from __future__ import annotations

from anychip.plan import PageMove

from .eviction import Policy, least_recently_used
from .host_tier import HostTier
from .pages import PageAllocator
from .radix import RadixTree
from .radix_node import RadixNode
from .sequence import Sequence
from .snapshots import Snapshots


class PageStore:
    """Every page is in one place: free, in the tree, or a sequence's own.

    host_slots: pages that host memory keeps of those that are evicted; 0: none. snapshots: of the
    recurrent state, where the model has one and prefixes are to be found again.

    A page given back may be handed out by the very next plan. That is sound although the step
    before may still be reading it: a chip runs steps in order, and the plan that hands the page
    out carries the changed tables of all its rows. No page is given back between a step's plan
    and its commit.
    """

    def __init__(  # noqa: PLR0913 - pages, and each of the things that keep some
        self,
        pages: int,
        page_size: int,
        *,
        radix: bool,
        force_miss: bool,
        policy: Policy = least_recently_used,
        host_slots: int = 0,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.page_size = page_size
        self.allocator = PageAllocator(pages)
        self.tier = HostTier(host_slots) if radix and host_slots else None
        self.tree = RadixTree(page_size, policy, self.tier, snapshots) if radix else None
        self.snapshots = snapshots
        self.evicted = 0
        self._force_miss = force_miss

    @property
    def evictable(self) -> int:
        """Cached pages that nobody holds."""
        return self.tree.evictable if self.tree else 0

    @property
    def available(self) -> int:
        """Pages that can be had without retracting anyone."""
        return self.allocator.free_count + self.evictable

    def pages_for(self, positions: int) -> int:
        """Pages that hold so many positions."""
        return -(-positions // self.page_size)

    def take(self, count: int) -> list[int]:
        """Hand out pages, evicting as needed. PageError where `available` is less."""
        short = count - self.allocator.free_count
        if short > 0 and self.tree:
            evicted = self.tree.evict(short)
            self.evicted += len(evicted)
            self.allocator.give_back(evicted)
        return self.allocator.take(count)

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens that `attach` would find; nothing is locked and nothing counts as used."""
        if self.tree is None or self._force_miss:
            return 0
        namespace = sequence.request.namespace
        return self.tree.cached_tokens(namespace, sequence.tokens[: sequence.reusable])

    def attach(self, sequence: Sequence) -> None:
        """Lock the longest cached prefix and make it the start of the sequence's table.

        What of it lies in host memory is locked too and comes with `load`.
        Tokens whose logits are wanted, the last one at least, are never taken from the cache.
        """
        if self.tree is None:
            return
        longest = 0 if self._force_miss else sequence.reusable
        end, known = self.tree.match(sequence.request.namespace, sequence.tokens[:longest])
        node, pages = self.tree.usable(end, known)
        self.tree.lock(node)
        sequence.node = node
        sequence.pages = pages
        sequence.shared = len(pages)
        sequence.computed = len(pages) * self.page_size
        if self.snapshots is None:
            return
        if node.state:
            self.snapshots.find(sequence, node)
        if len(known) > len(pages):  # what others share with it ends there: they may come again
            self.snapshots.ask(sequence, len(known) * self.page_size)

    def load(self, sequence: Sequence) -> int:
        """Bring back what `attach` found in host memory; return its tokens.

        The caller has seen that there are pages enough.
        """
        if self.tree is None or sequence.node is None:
            return 0
        path = self.tree.on_host(sequence.node)
        if not path:
            return 0
        pages = self.take(sum(len(node.slots) for node in path))
        self.tree.load(path, pages)
        sequence.pages += pages
        sequence.shared += len(pages)
        sequence.computed += len(pages) * self.page_size
        return len(pages) * self.page_size

    def take_moves(self) -> tuple[PageMove, ...]:
        """Return the copies between the cache and host memory that the next step needs first."""
        return self.tier.take_moves() if self.tier else ()

    def count(self, sequence: Sequence) -> None:
        """Count the request on the prefix that it found: once, whatever happens to it later."""
        if self.tree and sequence.node:
            self.tree.use(sequence.node, sequence.request.priority)

    def share(self, sequence: Sequence) -> bool:
        """Put the computed whole pages into the tree; say whether it holds more of it now.

        Of a model with recurrent state only those up to a snapshot: the others are of no use.
        Where the tree had some of them already the sequence changes over to the tree's and its
        own are free: the next plan with a row of it carries the changed table entries.
        """
        if self.snapshots is None:
            return self._share(sequence, sequence.computed // self.page_size)
        found = False
        while end := self.snapshots.landed(sequence):
            found |= self._share(sequence, end // self.page_size)
            assert sequence.node is not None, "it runs"
            self.snapshots.hold(sequence, end, sequence.node)
        return found

    def _share(self, sequence: Sequence, whole: int) -> bool:
        """Put its first pages into the tree, so many in all."""
        if self.tree is None or sequence.node is None or whole <= sequence.shared:
            return False
        first = sequence.shared
        own = sequence.pages[first:whole]
        tokens = sequence.tokens[first * self.page_size : whole * self.page_size]
        node, known = self.tree.insert(sequence.node, tokens, own)
        self.tree.lock(node, below=sequence.node)
        self.tree.use(node, sequence.request.priority, below=sequence.node)
        if known:
            self.allocator.give_back(own[: len(known)])
            sequence.pages[first : first + len(known)] = known
            sequence.dirty_from = min(sequence.dirty_from, first)
        sequence.node = node
        sequence.shared = whole
        return True

    def detach(self, sequence: Sequence) -> None:
        """Give back the sequence's own pages and let go of its prefix."""
        if self.snapshots is not None:
            self.snapshots.leave(sequence)
        self.allocator.give_back(sequence.pages[sequence.shared :])
        if self.tree and sequence.node:
            self.tree.unlock(sequence.node)
        sequence.forget_place()

    def drop(self, node: RadixNode | None) -> None:
        """Free what is cached on the path of `node` and that nobody else holds or continues."""
        if self.tree and node:
            self.allocator.give_back(self.tree.drop(node))

    def flush(self) -> None:
        """Free every cached page that nobody holds, and every slot of host memory."""
        if self.tree:
            self.allocator.give_back(self.tree.clear())
