"""Where the collectors take what they show from."""

from __future__ import annotations

from typing import Protocol

from anychip.engine.messages import EngineInfo
from anychip.plan import SchedulerStats


class EngineView(Protocol):
    """What metrics need of the engine's client (`engine.client.EngineClient`)."""

    stats: SchedulerStats

    @property
    def info(self) -> EngineInfo:
        """The engine's facts."""

    @property
    def ready(self) -> bool:
        """Whether the engine takes requests."""

    @property
    def deaths(self) -> int:
        """How often the engine process died."""
