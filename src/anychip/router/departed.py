"""Workers that were removed, for as long as the metrics still tell of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

GONE_S = 300.0
"""As far back as Prometheus looks for a series, so that nobody who scrapes misses the end."""


class Departed:
    """By their names. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, str | None]] = {}

    def left(self, name: str, chip: str | None) -> None:
        """The worker was removed just now."""
        self._left[name] = (self._clock() + GONE_S, chip)

    def now(self) -> Mapping[str, str | None]:
        """Names and chips of those that left within GONE_S; the others are forgotten."""
        now = self._clock()
        self._left = {name: one for name, one in self._left.items() if one[0] > now}
        return {name: chip for name, (_, chip) in self._left.items()}
