"""Who answers a call: those that are ready, have the model and are in the rule; of them, the
policy's choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from anychip.http.errors import ApiError, unavailable

from .asking import Ask
from .choosing import Choice, Policy, Seen
from .fleet import Fleet
from .rules import Fallback, Narrowed, Rule, narrowed
from .worker import Worker

RETRY_S = 2
"""What clients are told to wait where nobody is ready."""


@dataclass(frozen=True)
class Picker:
    """Belongs to one event loop."""

    fleet: Fleet
    policy: Policy
    rules: Sequence[Rule]
    fallback: Fallback

    def candidates(self, ask: Ask, tried: Collection[str] = ()) -> Narrowed:
        """Who may be asked, but for those that were. ApiError 404 for a model that nobody has,
        503 where nobody is ready that may answer."""
        workers = self._with_model(ask.model)
        found = narrowed(
            self.rules, ask, [one.name for one in workers], self._tags(), self.fallback
        )
        if not found.names:
            rule = found.rule.text if found.rule is not None else ""
            raise unavailable(
                f"the workers of --rule {rule!r} are away: {self.fleet.reasons()}",
                "no_worker_ready",
                RETRY_S,
            )
        return found._replace(names=tuple(name for name in found.names if name not in tried))

    def pick(self, ask: Ask, names: Collection[str]) -> Choice:
        """One of `names`, which are not empty."""
        seen = []
        for name in names:
            worker, load = self.fleet.workers[name], self.fleet.book.of(name)
            window, weight = worker.facts.window, worker.place.weight
            seen.append(Seen(name, load.calls, load.tokens, window, weight))
        return self.policy.choose(ask, seen)

    def holder(self, name: str) -> Worker:
        """The one worker that has what a call is about. ApiError 404 where it was removed, 503
        where it takes no calls."""
        worker = self.fleet.workers.get(name)
        if worker is None:
            text = f"worker {name!r} had it, and was removed"
            raise ApiError(404, text, code="response_not_found")
        if worker.state not in ("ready", "draining"):
            text = f"worker {name!r} has it, and is {worker.state} ({worker.reason})"
            raise unavailable(text, "no_worker_ready", RETRY_S)
        return worker

    def _with_model(self, model: str | None) -> list[Worker]:
        ready = self.fleet.ready()
        found = [worker for worker in ready if worker.facts.has(model)]
        if found:
            return found
        known = self.fleet.workers.values()
        away = [one for one in known if one.state != "ready" and one.facts.has(model)]
        unknown = [one for one in known if not one.facts.models]
        if ready and not away and not unknown:
            names = ", ".join(sorted({repr(name) for one in ready for name in one.facts.models}))
            raise ApiError(
                404,
                f"the model {model!r} does not exist; the workers have {names}",
                param="model",
                code="model_not_found",
            )
        what = f"with the model {model!r} " if ready else ""
        text = f"no worker {what}is ready: {self.fleet.reasons()}"
        raise unavailable(text, "no_worker_ready", RETRY_S)

    def _tags(self) -> dict[str, tuple[str, ...]]:
        return {name: worker.place.tags for name, worker in self.fleet.workers.items()}
