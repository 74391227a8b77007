"""Keeps one engine process running: starts it, watches its heartbeat, restarts it, or gives up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from anychip.engine.child import KILL_PATIENCE_S, EngineChild, describe_exit
from anychip.engine.log_lines import FACTS
from anychip.engine.messages import (
    Answer,
    Boot,
    Close,
    Command,
    Died,
    EngineInfo,
    EngineMessage,
    LogLine,
    Ready,
    StartError,
    StartFailed,
    StepMessage,
)
from anychip.engine.passing import LOGGER, Passing

log = logging.getLogger("anychip.engine")

_EXIT_PATIENCE_S = 5.0
_RESTART_SHARE = 4.0
"""A restart may take this many times as long as the first start, or as long as a step may."""


class EngineState(str, Enum):
    """Where the engine process is in its life."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """After which pause to restart, and when to give up: `deaths` within `window_s` seconds."""

    first_pause_s: float = 1.0
    deaths: int = 3
    window_s: float = 600.0

    def pause_s(self, recent: int) -> float | None:
        """Seconds before the next start after `recent` deaths: 1, 2, 4 …; None: give up."""
        return None if recent >= self.deaths else float(self.first_pause_s * 2 ** (recent - 1))


class EngineListener(Protocol):
    """Who is told what the engine says. Called on the event loop; must not block."""

    def on_message(self, message: Answer) -> None:
        """The engine said something about requests."""

    def on_down(self, reason: str) -> None:
        """The engine process is gone and every running request with it."""


class Child(Protocol):
    """One run of the engine process (`child.EngineChild`)."""

    @property
    def pid(self) -> int:
        """The process id."""

    async def listen(self, take: Callable[[EngineMessage], None]) -> None:
        """Hand on each message until the process has ended. Raises what `take` raises."""

    def send(self, items: Sequence[Command]) -> None:
        """Send commands."""

    async def end(self, patience_s: float) -> int | None:
        """Wait, then kill; the exit code, None where not even that ended the process."""


class EngineStuck(RuntimeError):
    """The engine process outlives SIGKILL and holds its device."""


class Supervisor:
    """One engine process after another, at most one at a time.

    watchdog_s: a ready engine that is silent for longer is killed (and restarted).
    launch: starts a process; tests bring their own.
    """

    def __init__(
        self,
        boot: Boot,
        listener: EngineListener,
        policy: RestartPolicy,
        watchdog_s: float,
        launch: Callable[[Boot], Awaitable[Child]] = EngineChild.launch,
    ) -> None:
        self.state = EngineState.STARTING
        self.reason = "the engine is starting"
        self.info: EngineInfo | None = None
        self.deaths = 0
        self.fatal_errors: Counter[tuple[str, str]] = Counter()
        """Chip errors that ended an engine process, by layer and kind."""
        self._boot, self._listener = boot, listener
        self._policy, self._watchdog_s = policy, watchdog_s
        self._launch = launch
        self._child: Child | None = None
        self._verdict = ""
        self._last_words = ""
        self._heard = self._launched = time.monotonic()
        self._first_start_s = 0.0
        self._recent: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[EngineInfo] | None = None
        self._closing, self._cut = asyncio.Event(), asyncio.Event()

    async def start(self) -> EngineInfo:
        """Start the engine process and wait until it is ready. StartError if it never is."""
        self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        return await self._started

    def send(self, items: Sequence[Command]) -> None:
        """Pass commands on; they are lost where no engine runs."""
        if self._child is not None:
            self._child.send(items)

    def heartbeat_age(self) -> float:
        """Seconds since the engine was last heard."""
        return time.monotonic() - self._heard

    @property
    def pid(self) -> int | None:
        """The running engine process, None between two."""
        return self._child.pid if self._child else None

    async def close(self, patience_s: float) -> None:
        """End the engine process, in good order within `patience_s` seconds, then by force."""
        self._closing.set()
        if self._task is None:
            return
        if self._child is not None and self.state is EngineState.READY and patience_s > 0:
            self._child.send([Close()])
            await asyncio.wait({self._task}, timeout=patience_s)
        self._cut.set()
        await self._task
        self.state = EngineState.CLOSED
        self.reason = "the engine is closed"

    async def _run(self) -> None:
        try:
            await self._supervise()
        except EngineStuck as error:
            log.critical("%s", error)
            self.deaths += 1
            self._listener.on_down(str(error))
            self._give_up(str(error))
        except Exception as error:
            self._give_up(f"the supervisor failed: {error}")
            raise

    async def _supervise(self) -> None:
        reason = await self._live()
        if self.info is None:
            self._give_up("stopped while starting" if self._closing.is_set() else reason)
            return
        while not self._closing.is_set():
            pause_s = self._count_death(reason)
            self._listener.on_down(reason)
            if pause_s is None:
                self._give_up(f"{len(self._recent)} engine deaths, the last: {reason}")
                return
            log.error("engine died: %s; restarting in %g s", reason, pause_s)
            await _first_of(self._closing, pause_s)
            if not self._closing.is_set():
                reason = await self._live()

    def _count_death(self, reason: str) -> float | None:
        """Book one death; the pause before the next start, None where it was one too many."""
        now = time.monotonic()
        self.deaths += 1
        self._recent = [when for when in self._recent if now - when < self._policy.window_s]
        self._recent.append(now)
        self.state = EngineState.RESTARTING
        self.reason = f"the engine is restarting after: {reason}"
        return self._policy.pause_s(len(self._recent))

    def _give_up(self, reason: str) -> None:
        self.state, self.reason = EngineState.FAILED, f"the engine has failed: {reason}"
        if self._started is not None and not self._started.done():
            self._started.set_exception(StartError(reason))
        elif not self._closing.is_set():
            log.critical("no further restart: %s", reason)

    async def _live(self) -> str:
        """One process from start to end; why it ended. EngineStuck where it does not."""
        self._verdict = self._last_words = ""
        self._launched = time.monotonic()
        try:
            child = self._child = await self._launch(self._boot)
        except OSError as error:
            return f"the engine process could not be started: {error}"
        patience_s = 0.0
        try:
            patience_s = await self._until_over(child)
        finally:
            code = await child.end(patience_s)
            self._child = None
        if code is None:
            raise EngineStuck(_stuck(child.pid, self._verdict))
        words = self._verdict or self._last_words
        return words or f"the engine process ended by itself: {describe_exit(code)}"

    async def _until_over(self, child: Child) -> float:
        """Listen until the process hangs up, is silent for too long, or is cut off.

        Returns how long it may take to end, seconds.
        """
        listening = asyncio.create_task(child.listen(self._take))
        others = [asyncio.create_task(self._watch()), asyncio.create_task(self._cut.wait())]
        try:
            await asyncio.wait({listening, *others}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
                return _EXIT_PATIENCE_S
            return 0.0
        finally:
            for task in (listening, *others):
                task.cancel()

    def _take(self, message: EngineMessage) -> None:
        self._heard = time.monotonic()
        if isinstance(message, StepMessage):  # nearly all are
            self._listener.on_message(message)
        elif isinstance(message, LogLine):
            _tell(message)
        elif isinstance(message, Ready):
            self._ready(message.info)
        elif isinstance(message, (StartFailed, Died)):
            self._last_words = message.text
            if isinstance(message, Died) and message.fact is not None:
                self.fatal_errors[message.fact] += 1
        else:
            self._listener.on_message(message)

    def _ready(self, info: EngineInfo) -> None:
        self.info, self.state, self.reason = info, EngineState.READY, ""
        if self._started is not None and not self._started.done():
            self._first_start_s = time.monotonic() - self._launched
            self._started.set_result(info)
        else:
            log.info("engine restarted")

    async def _watch(self) -> None:
        """Return, with a verdict, once the engine has been silent or starting for too long."""
        while not self._verdict:
            await asyncio.sleep(min(1.0, self._watchdog_s / 4))
            if self.state is EngineState.READY and self.heartbeat_age() > self._watchdog_s:
                self._verdict = f"no step ended within --watchdog-timeout {self._watchdog_s:g} s"
            elif self.state is EngineState.RESTARTING:
                limit_s = max(self._watchdog_s, _RESTART_SHARE * self._first_start_s)
                if time.monotonic() - self._launched > limit_s:
                    self._verdict = f"it was not ready again within {limit_s:.3g} s"


def _stuck(pid: int, verdict: str) -> str:
    why = f" ({verdict})" if verdict else ""
    return (
        f"the engine process {pid} is still there {KILL_PATIENCE_S:g} s after SIGKILL{why}: it"
        " hangs in the kernel or a driver and holds its device, so no other is started. Look at"
        " `dmesg`; reset the device or the machine, then start the server again"
    )


async def _first_of(event: asyncio.Event, pause_s: float) -> None:
    """Wait for the event, `pause_s` seconds at most."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting}, timeout=pause_s)
    waiting.cancel()


def _tell(line: LogLine) -> None:
    """Write a line of the engine's into this process's log."""
    if line.passing:
        logging.getLogger(LOGGER).log(line.level, Passing(line.text))
        return
    writer = logging.getLogger(line.logger)
    if writer.isEnabledFor(line.level):
        facts = {FACTS: line.facts}
        record = writer.makeRecord(writer.name, line.level, "", 0, line.text, (), None, extra=facts)
        record.created = line.when or record.created
        writer.handle(record)
