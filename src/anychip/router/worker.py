"""One worker: what is known of it, and when it is sick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anychip.settings.router import HealthSettings, WorkerPlace

from .telemetry import State

LONGEST_PAUSE_S = 60.0
"""Between two looks at a worker that is sick, unless looks are rarer anyway."""
STARTING_PAUSE_S = 1.0
"""Between two looks at one that never was ready, unless looks are more frequent anyway."""


@dataclass(frozen=True)
class Facts:
    """What a worker tells of itself. models: by id, as in /v1/models.

    window: calls that it runs at once; cache_tokens: of its whole KV cache; instance: changes where
    the worker, or its engine, was started again; server: its id, whatever the address. All None
    where it does not tell.
    """

    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chip: str | None = None
    window: int | None = None
    cache_tokens: int | None = None
    instance: str | None = None
    server: str | None = None

    def has(self, model: str | None) -> bool:
        """Whether it serves the model. Without a name any is meant."""
        if model is None or model in self.models:
            return True
        return any(card.get("root") == model for card in self.models.values())


class Worker:
    """State of one worker; whoever learns something tells it here.

    Failures of calls and of looks are counted apart: a worker whose every answer fails is not
    well because it says so.
    """

    def __init__(self, place: WorkerPlace, health: HealthSettings) -> None:
        self.place, self._health = place, health
        self.state: State = "starting"
        self.reason = "not asked yet"
        self.facts = Facts()
        self._failed_calls = self._failed_looks = 0
        self._good_looks, self._needed = 0, 1
        self._openings = self._grown = 0

    @property
    def name(self) -> str:
        """As the user calls it."""
        return self.place.name

    def looked(self, facts: Facts) -> bool:
        """It is well by its own word. Returns whether its cache is another than before."""
        known = self.facts.instance
        self.facts, self._failed_looks = facts, 0
        anew = known is not None and known != facts.instance
        if self.state not in ("starting", "sick"):
            return anew
        self._good_looks += 1
        if self.state == "sick" and self._good_looks < self._needed:
            return anew
        # One that tells nothing of its process may have been started again while it was away.
        anew = anew or (self.state == "sick" and facts.instance is None)
        self.state, self.reason = "ready", ""
        self._failed_calls = self._grown = 0
        return anew

    def looks_unwell(self, reason: str) -> None:
        """A look at it failed: nobody answers, or nothing that can be understood."""
        self._failed_looks += 1
        self._good_looks = 0
        if self.state == "ready" and self._failed_looks >= self._health.breaker_failures:
            self._sicken(reason, self._health.breaker_successes)
        elif self.state in ("starting", "sick"):
            self.reason = reason
            self._grown += 1

    def says_not_ready(self, reason: str) -> None:
        """It answers, and says that it takes no calls now."""
        self._good_looks = self._failed_looks = 0
        if self.state == "ready":
            self._sicken(reason, 1)
        elif self.state in ("starting", "sick"):
            self.reason = reason

    def answered(self) -> None:
        """A call went well."""
        self._failed_calls = self._openings = 0

    def failed(self, reason: str) -> bool:
        """A call failed by the worker's fault. Returns whether it is sick from now on."""
        self._failed_calls += 1
        if self.state != "ready" or self._failed_calls < self._health.breaker_failures:
            return False
        self._openings += 1
        self._sicken(f"{self._failed_calls} calls failed: {reason}", self._health.breaker_successes)
        return True

    def _sicken(self, reason: str, needed: int) -> None:
        self.state, self.reason, self._needed = "sick", reason, needed
        self._good_looks = self._grown = 0

    def drain(self) -> None:
        """It gets no new calls from now on."""
        self.state, self.reason = "draining", "it is being removed"

    def gone(self) -> None:
        """It is removed."""
        self.state, self.reason = "gone", "removed"

    @property
    def pause_s(self) -> float:
        """Until it is looked at again; longer each time for one that stays sick."""
        usual = self._health.health_check_interval_s
        if self.state == "starting":
            return min(usual, STARTING_PAUSE_S)
        if self.state != "sick" or self._good_looks:
            return usual
        grown = min(10, max(0, self._openings - 1) + self._grown)
        return max(usual, min(LONGEST_PAUSE_S, usual * 2.0**grown))
