"""How fast sequences end lately: what a client that has to come back is told."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

_ENDS = 64
"""How many of the last ends are looked at."""
LONGEST_S = 60


class Turnover:
    """The last ends of sequences. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=_ENDS)

    def ended(self) -> None:
        """A sequence ended and left its place."""
        self._ends.append(self._clock())

    def wait_s(self, waiting: int) -> int:
        """Whole seconds in which `waiting` sequences should have had their turn, 1 to LONGEST_S.

        1 where too little is known.
        """
        if len(self._ends) < 2:
            return 1
        span_s = self._clock() - self._ends[0]
        return min(max(math.ceil(waiting * span_s / len(self._ends)), 1), LONGEST_S)
