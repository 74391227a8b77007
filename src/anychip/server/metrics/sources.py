"""Where the collectors take what they show from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anychip.engine.messages import EngineInfo
from anychip.figures import EngineFigures
from anychip.plan import SchedulerStats


class EngineView(Protocol):
    """What metrics need of the engine's client (`engine.client.EngineClient`)."""

    stats: SchedulerStats
    figures: EngineFigures

    @property
    def info(self) -> EngineInfo:
        """The engine's facts."""

    @property
    def ready(self) -> bool:
        """Whether the engine takes requests."""

    @property
    def deaths(self) -> int:
        """How often the engine process died."""

    @property
    def chip_errors(self) -> Mapping[tuple[str, str], int]:
        """Chip errors of all engine processes so far, by layer and kind."""

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while none runs."""
