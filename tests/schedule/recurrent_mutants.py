"""Schedulers of models with recurrent state, with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anychip.schedule.radix import RadixTree
from anychip.schedule.scheduler import Scheduler
from anychip.schedule.snapshots import Snapshots
from anychip.schedule.store import PageStore

Make = Callable[..., Scheduler]


def with_snapshots(kind: type[Snapshots]) -> Make:
    """A scheduler whose snapshots are kept by `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        store = made._state.store
        if store.tree and store.snapshots:
            room = limits.snapshots, limits.snapshot_every, limits.page_size
            store.snapshots = store.tree.snapshots = kind(limits.max_running, *room)
        return made

    return make


def with_recurrent_tree(kind: type[RadixTree]) -> Make:
    """A scheduler whose prefix tree, where its nodes have snapshots, is of `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        store = made._state.store
        if store.tree and store.snapshots:
            store.tree = kind(limits.page_size, store.tree.policy, snapshots=store.snapshots)
        return made

    return make


def with_recurrent_store(kind: type[PageStore]) -> Make:
    """A scheduler whose pages are kept by `kind`, where there are snapshots."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        snapshots = made._state.store.snapshots
        if snapshots:
            pages, size, miss = limits.pages, limits.page_size, options.hooks.force_miss
            made._state.store = kind(pages, size, radix=True, force_miss=miss, snapshots=snapshots)
        return made

    return make


class SplitsTheState(RadixTree):
    """The first part of a split node keeps the snapshot, which is of its last part's end."""

    def _split(self, node, at):
        head = super()._split(node, at)
        if node.state:
            slot, node.state = node.state, 0
            head.state, self.snapshots._held[slot] = slot, head
        return head


class KeepsTheStateOfALostEnd(RadixTree):
    """A node whose last pages are evicted keeps its snapshot."""

    def _lose_state(self, node):
        if not (node.lock == 0 and node.pages and node.is_inside and node.size > 1):
            super()._lose_state(node)


class FindsPagesWithoutState(RadixTree):
    """A prefix is found as far as there are pages, be there a snapshot or not."""

    def usable(self, node, pages):
        return node, pages


class CountsPagesWithoutState(RadixTree):
    """As much of a prefix is found as would be without recurrent state: from another snapshot."""

    def usable(self, node, pages):
        found, _ = super().usable(node, pages)
        return found, pages


class TakesWhatIsGoneOnFrom(Snapshots):
    """A snapshot that a request goes on from is taken for another."""

    def move(self, sequence, slot):
        sequence.state_at = slot


class TakesWhatThisStepReads(Snapshots):
    """A snapshot that a row of this step reads is written by another one."""

    def place(self, sequence, end):
        found = super().place(sequence, end)
        self._read.clear()
        return found


class ForgetsWhatIsComing(Snapshots):
    """A snapshot of a step that nobody takes in is lost for ever."""

    def leave(self, sequence):
        sequence.coming.clear()
        super().leave(sequence)


class HoldsTooEarly(Snapshots):
    """A snapshot is found before the step that writes it has landed."""

    def landed(self, sequence):
        return min(sequence.coming, default=0)


class ReadsItsOwnSlot(Snapshots):
    """A request that found a snapshot reads the slot that it will write."""

    def place(self, sequence, end):
        _, target = super().place(sequence, end)
        return 1 + sequence.slot, target


class HoldsAtTheNodeBefore(PageStore):
    """A snapshot goes to the node that its sequence held before it was taken."""

    def share(self, sequence):
        end, before = self.snapshots.landed(sequence), sequence.node
        if not end:
            return False
        found = self._share(sequence, end // self.page_size)
        self.snapshots.hold(sequence, end, before)
        return found


RECURRENT_MUTANTS: dict[str, Make] = {
    "a snapshot goes to the head of a split": with_recurrent_tree(SplitsTheState),
    "a snapshot outlives its position": with_recurrent_tree(KeepsTheStateOfALostEnd),
    "pages found without a snapshot": with_recurrent_tree(FindsPagesWithoutState),
    "a snapshot of a shorter prefix": with_recurrent_tree(CountsPagesWithoutState),
    "a snapshot in use taken": with_snapshots(TakesWhatIsGoneOnFrom),
    "a snapshot written while it is read": with_snapshots(TakesWhatThisStepReads),
    "a coming snapshot lost": with_snapshots(ForgetsWhatIsComing),
    "a snapshot found before it is there": with_snapshots(HoldsTooEarly),
    "the snapshot not read": with_snapshots(ReadsItsOwnSlot),
    "a snapshot on another node": with_recurrent_store(HoldsAtTheNodeBefore),
}
