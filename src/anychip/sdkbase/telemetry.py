"""The contract's telemetry over what a vendor's library tells of one card."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from anychip.contract.errors import ChipError
from anychip.contract.memory import MemoryInfo
from anychip.contract.optional import Reading, Telemetry


class Counters(Protocol):
    """What tells of cards by their index, as `management.ManagementLibrary`. Raises ChipError."""

    def utilization(self, index: int) -> float:
        """0 to 1."""

    def temperature(self, index: int) -> float:
        """Degrees Celsius."""

    def power(self, index: int) -> float:
        """Watts."""


class CardTelemetry(Telemetry):
    """One card. info: the memory layer's, which knows what its pool keeps and the largest block.
    untold: codes that say that this card does not tell: no reading then.
    """

    def __init__(
        self,
        counters: Counters,
        index: int,
        info: Callable[[], MemoryInfo],
        untold: Collection[int],
    ) -> None:
        self._counters, self._index, self._info, self._untold = counters, index, info, untold

    def read(self) -> Reading:
        """What this card does not tell is None; any other error is raised (ChipError)."""
        asked = self._counters.utilization, self._counters.temperature, self._counters.power
        return Reading(self._info(), *map(self._told, asked))

    def _told(self, ask: Callable[[int], float]) -> float | None:
        try:
            return ask(self._index)
        except ChipError as error:
            if error.code not in self._untold:
                raise
            return None
