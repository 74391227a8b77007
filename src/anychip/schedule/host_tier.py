"""Host memory behind the prefix tree: which slots are free, and what has to be copied."""

from __future__ import annotations

from collections.abc import Iterable

from anychip.plan import PageMove

from .pages import PageAllocator


class HostTier:
    """Slots of one page each, and the copies that the next plan has to carry, in their order.

    The order is what makes reuse sound: a slot or a page that is read by one move may be
    written by a later one of the same step.
    """

    def __init__(self, slots: int) -> None:
        self.slots = PageAllocator(slots)
        self.saved = 0
        self.loaded = 0
        self._moves: list[PageMove] = []

    def save(self, pages: Iterable[int], slots: Iterable[int]) -> None:
        """Copy pages out to slots, before a step writes to them."""
        self._moves += [PageMove(page, slot, True) for page, slot in zip(pages, slots, strict=True)]

    def load(self, slots: Iterable[int], pages: Iterable[int]) -> None:
        """Copy slots in to pages; the slots are free from here on."""
        loads = [PageMove(page, slot, False) for page, slot in zip(pages, slots, strict=True)]
        self._moves += loads
        self.slots.give_back(move.slot for move in loads)

    def take_moves(self) -> tuple[PageMove, ...]:
        """Return and forget the moves so far: they are the next plan's.

        A copy that is written over before anybody reads it is left out.
        """
        moves: list[PageMove] = []
        overwritten: set[int] = set()
        for move in reversed(self._moves):
            if not move.to_host:
                overwritten.discard(move.slot)
                self.loaded += 1
            elif move.slot in overwritten:
                continue
            else:
                overwritten.add(move.slot)
                self.saved += 1
            moves.append(move)
        self._moves = []
        return tuple(moves[::-1])
