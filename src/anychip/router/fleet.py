"""All workers: looked at one beside the other, and told of what calls to them came to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from anychip.flags import ConfigError
from anychip.http.relay import Headers, Relay
from anychip.settings.router import HealthSettings, WorkerPlace

from .choosing import Policy
from .departed import Departed
from .load_book import LoadBook
from .looking import NotReady, Unwell, look
from .telemetry import State, TelemetryHub, TryError, WorkerView
from .worker import Worker

log = logging.getLogger("anychip.router")

_OURS: tuple[TryError, ...] = ("connect", "timeout", "broken", "cut")
"""Failures that are a worker's fault."""
_FAULTS = (500, 502)
"""And such answers. A 503 says that it has no room; a 504, that a call took too long."""


class Fleet:
    """The workers by their names. Belongs to one event loop; `close` must be called.

    headers: of questions about a worker, with its key.
    """

    def __init__(
        self, health: HealthSettings, relay: Relay, policy: Policy, hub: TelemetryHub
    ) -> None:
        self.workers: dict[str, Worker] = {}
        self.book = LoadBook()
        self.headers: Headers = []
        self._health, self._relay = health, relay
        self._policy, self._hub = policy, hub
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, State] = {}
        self._departed = Departed(time.monotonic)
        hub.follow(self.views, self.chip_of)

    def add(self, place: WorkerPlace) -> Worker:
        """A worker more; it is looked at from now on. ConfigError where there is such a one."""
        for other in self.workers.values():
            if other.name == place.name or other.place.url == place.url:
                leaves = other.state == "draining"
                way_out = (
                    "wait until it is gone" if leaves else f"DELETE /workers/{other.name} first"
                )
                raise ConfigError(
                    f"worker {place.name!r} at {place.url}: there is {other.name!r} at"
                    f" {other.place.url}, {other.state}; {way_out}"
                )
        worker = self.workers[place.name] = Worker(place, self._health)
        self._tasks[place.name] = asyncio.create_task(self._follow(worker))
        return worker

    async def remove(self, name: str, patience_s: float) -> int:
        """Drain the worker and remove it; the calls that were still in flight after `patience_s`.
        KeyError where there is none of that name."""
        worker = self.workers[name]
        worker.drain()
        log.info("worker %s: draining, %d calls in flight", name, self.book.of(name).calls)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while self.book.of(name).calls and loop.time() < deadline:
            await asyncio.sleep(0.02)
        if self.workers.get(name) is worker:
            del self.workers[name]
            self._tasks.pop(name).cancel()
            self._told.pop(name, None)
            worker.gone()
            self._departed.left(name, worker.facts.chip)
            self._policy.forget(name)
            log.info("worker %s: removed", name)
        return self.book.of(name).calls

    async def close(self) -> None:
        """Look at nobody any more."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def views(self) -> Sequence[WorkerView]:
        """For the metrics: those that were removed not long ago too."""
        found = []
        for worker in self.workers.values():
            load, facts = self.book.of(worker.name), worker.facts
            found.append(WorkerView(worker.name, worker.state, *load, facts.window, facts.chip))
        for name, chip in self._departed.now().items():
            if name not in self.workers:
                found.append(WorkerView(name, "gone", *self.book.of(name), None, chip))
        return found

    def chip_of(self, name: str) -> str | None:
        """What the worker of this name told of its chip."""
        worker = self.workers.get(name)
        return None if worker is None else worker.facts.chip

    def ready(self) -> list[Worker]:
        """Those that calls may be given to."""
        return [worker for worker in self.workers.values() if worker.state == "ready"]

    def at_work(self) -> list[Worker]:
        """Those that may run calls: ready ones, and all that have any in flight."""
        workers = self.workers.values()
        return [one for one in workers if one.state == "ready" or self.book.of(one.name).calls]

    def reasons(self) -> str:
        """Why the others are not, in words."""
        told = [
            f"{worker.name} is {worker.state}" + (f" ({worker.reason})" if worker.reason else "")
            for worker in self.workers.values()
            if worker.state != "ready"
        ]
        return "; ".join(told) or "there is no worker"

    def took(self, name: str, status: int | None, error: TryError | None, text: str) -> None:
        """A try at the worker is over. text: what went wrong."""
        worker = self.workers.get(name)
        if worker is None:
            return
        if error in _OURS or status in _FAULTS:
            if worker.failed(text):
                self._hub.breaker_opened(name)
                self._tell(worker)
        elif error is None and status is not None and status < 500:
            worker.answered()

    async def _follow(self, worker: Worker) -> None:
        """Look at one worker again and again, whatever the others do."""
        me = asyncio.current_task()
        while True:
            reason = worker.reason
            twice = await self._look(worker)
            # Before Python 3.12 wait_for loses a cancellation that meets the end of its wait.
            if self._tasks.get(worker.name) is not me:
                return
            self._tell(worker)
            if worker.state == "starting" and worker.reason != reason:
                level = logging.WARNING if twice else logging.INFO
                log.log(level, "worker %s: not ready yet: %s", worker.name, worker.reason)
            await asyncio.sleep(worker.pause_s)

    async def _look(self, worker: Worker) -> bool:
        """Whether it is refused: another worker is the same server."""
        limit_s = self._health.health_check_timeout_s
        try:
            facts = await look(self._relay, worker.place.url, self.headers, limit_s)
        except NotReady as error:
            worker.says_not_ready(str(error))
        except Unwell as error:
            worker.looks_unwell(str(error))
        except Exception as error:  # a bug of ours: the next look may find the worker well
            log.error("worker %s could not be looked at", worker.name, exc_info=error)
            worker.looks_unwell(f"the look itself failed ({type(error).__name__})")
        else:
            twin = self._twin(worker, facts.server)
            if twin is not None:
                worker.says_not_ready(
                    f"it is the same server as {twin.name!r} at {twin.place.url}, which would get "
                    f"twice the calls that it has room for: DELETE /workers/{worker.name}"
                )
                return True
            if worker.looked(facts):
                log.info("worker %s was started again: its cache is empty", worker.name)
                self._policy.forget(worker.name)
        return False

    def _twin(self, worker: Worker, server: str | None) -> Worker | None:
        """Another worker that has calls of this very server."""
        for other in self.workers.values():
            known = server is not None and other.facts.server == server
            if known and other is not worker and other.state in ("ready", "draining"):
                return other
        return None

    def _tell(self, worker: Worker) -> None:
        """Each change once: a look and a call may find the same one."""
        if worker.state == self._told.get(worker.name, "starting"):
            return
        self._told[worker.name] = worker.state
        if worker.state == "ready":
            facts = worker.facts
            about = ", ".join(facts.models)
            if facts.chip is not None:
                about += f" on {facts.chip}, {facts.window} calls at once"
            log.info("worker %s: ready, %s", worker.name, about)
        elif worker.state == "sick":
            log.warning("worker %s: sick: %s", worker.name, worker.reason)
