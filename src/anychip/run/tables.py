"""Per-slot page tables, kept on the host and told apart from the scheduler's by changes alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anychip.plan import TableChange


class PageTables:
    """pages[slot, i]: the page that holds positions i * page_size and on of that slot.

    view: the same, for single entries. version: another one after each change.
    """

    def __init__(self, slots: int, most_pages: int) -> None:
        self.pages: npt.NDArray[np.int32] = np.zeros((slots, most_pages), np.int32)
        self.view: memoryview[int] = self.pages.data
        self.version = 0

    def apply(self, changes: Sequence[TableChange]) -> None:
        """Entries that nobody reads any more keep their old pages."""
        for change in changes:
            self.version += 1
            end = change.first + len(change.pages)
            self.pages[change.slot, change.first : end] = change.pages
