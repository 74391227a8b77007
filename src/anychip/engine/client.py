"""The server's side of the engine: submit requests, read their outputs, abort, flush, close."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from anychip.config import ServeConfig
from anychip.engine.child import EngineChild
from anychip.engine.evidence import ProcessSeen
from anychip.engine.messages import (
    Abort,
    Answer,
    Boot,
    Command,
    EngineInfo,
    Flush,
    Flushed,
    Look,
    Looked,
    ProfileEnded,
    ProfileTold,
    ProfileWish,
    Refused,
    StartProfile,
    StepMessage,
    StopProfile,
    Submit,
)
from anychip.engine.spawn import BUILDER_MODULE, Spawned
from anychip.engine.supervisor import EngineState, RestartPolicy, Supervisor
from anychip.engine.suspects import Suspects
from anychip.figures import EngineFigures
from anychip.flags import settings_of
from anychip.plan import SchedulerStats
from anychip.request import FinishReason, Mark, Request, StepOutput
from anychip.schedule.refusal import QueueFull, RequestRefused

DEFAULT_BUILDER = f"{BUILDER_MODULE}:build_served_engine"

BACKLOG = 8192
"""Outputs that may wait for one reader; one that falls further behind is aborted."""


class EngineUnavailable(RuntimeError):
    """The engine takes no requests now; the text says why."""


class Outputs:
    """Outputs of the requests of one call that its reader has not taken yet.

    open: ids of those whose last output the reader has not had.
    """

    def __init__(self, requests: dict[str, Request], backlog: int) -> None:
        self.requests = requests
        self.open = set(requests)
        self._backlog = backlog
        self._waiting: deque[StepOutput] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    def put(self, output: StepOutput) -> bool:
        """Queue an output; False where the reader is too far behind."""
        if len(self._waiting) >= self._backlog and output.finish is None:
            return False
        self._waiting.append(output)
        self._wake()
        return True

    def fail(self, error: Exception) -> None:
        """Raise `error` in the reader, at once."""
        self._error = error
        self._wake()

    def drop(self) -> None:
        """Forget what the reader has not taken."""
        self._waiting.clear()

    async def next(self) -> StepOutput:
        """The next output, waiting for it. Raises what the engine refused; see `reading`."""
        while not self._waiting or self._error is not None:
            if self._error is not None:
                raise self._error
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        output = self._waiting.popleft()
        if output.finish is not None:
            self.open.discard(output.request_id)
        return output

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _Launching:
    """Starts engine processes; the first is the one that was spawned ahead, where there is one."""

    def __init__(self, spawned: Spawned | None) -> None:
        self._spawned = spawned

    async def __call__(self, boot: Boot) -> EngineChild:
        spawned, self._spawned = self._spawned, None
        return await EngineChild.launch(boot, spawned)


class EngineClient:
    """Talks to one supervised engine process. All methods belong to one event loop.

    spawned: a process that was started ahead, which the first engine runs in.
    """

    def __init__(
        self,
        config: ServeConfig,
        builder: str = DEFAULT_BUILDER,
        *,
        policy: RestartPolicy | None = None,
        backlog: int = BACKLOG,
        spawned: Spawned | None = None,
    ) -> None:
        # Keys and passwords are the server's: they do not travel.
        settings = settings_of(type(config))
        secrets: dict[str, Any] = {item.field: None for item in settings if item.flag.secret}
        plain = dataclasses.replace(config, **secrets)
        boot = Boot(builder, msgspec.Raw(msgspec.msgpack.encode(plain)), config.log_level)
        policy = policy or RestartPolicy()
        launch = _Launching(spawned)
        self._supervisor = Supervisor(boot, self, policy, config.watchdog_timeout, launch)
        self._suspects = Suspects(policy.window_s)
        # Aborted one or two steps ago: the engine may still compute them.
        self._leaving: tuple[list[Request], list[Request]] = ([], [])
        self._backlog = backlog
        self._streams: dict[str, Outputs] = {}
        self._outbox: list[Command] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._profile_ends: list[asyncio.Future[ProfileEnded]] = []
        self._number = 0
        self.last_profile: ProfileEnded | None = None
        """What became of the last profile, which may have ended by itself."""
        self.stats = SchedulerStats()
        self.figures = EngineFigures()
        self.on_timeline: Callable[[str, tuple[Mark, ...]], None] | None = None
        """Told of the timeline of every traced request, also where nobody reads it any more."""
        self._past_errors: Counter[tuple[str, str]] = Counter()  # of engines that are gone

    async def start(self) -> EngineInfo:
        """Start the engine. StartError, with a text for the user, where it cannot start."""
        return await self._supervisor.start()

    @property
    def info(self) -> EngineInfo:
        """The engine's facts. EngineUnavailable before it was ever ready."""
        if self._supervisor.info is None:
            raise EngineUnavailable(self._supervisor.reason)
        return self._supervisor.info

    @property
    def state(self) -> EngineState:
        """Where the engine process is in its life."""
        return self._supervisor.state

    @property
    def ready(self) -> bool:
        """Whether the engine takes requests."""
        return self._supervisor.state is EngineState.READY

    @property
    def reason(self) -> str:
        """Why it is not ready; empty where it is."""
        return self._supervisor.reason

    @property
    def deaths(self) -> int:
        """How often the engine process died."""
        return self._supervisor.deaths

    @property
    def chip_errors(self) -> Mapping[tuple[str, str], int]:
        """Chip errors of all engine processes so far, by layer and kind."""
        return self._past_errors + self._supervisor.fatal_errors + Counter(self.figures.chip_errors)

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while none runs."""
        return self._supervisor.pid

    def heartbeat_age(self) -> float:
        """Seconds since the engine was last heard; it speaks at least once a second or step."""
        return self._supervisor.heartbeat_age()

    @contextmanager
    def reading(self, *requests: Request) -> Iterator[Outputs]:
        """Run requests; what still runs at the end is aborted. Ask for outputs while any is open.

        An id is used once: outputs of an aborted request may still be under way when it ends here.
        A request that dies with the engine, or whose reader is too slow, ends with
        FinishReason.ERROR. Raises EngineUnavailable, QueueFull, RequestSuspected for one that was
        present in two crashes, and RequestRefused for a request that cannot run or whose id is in
        use; the other requests of the call are then aborted.
        """
        outputs = self._submit(requests)
        try:
            yield outputs
        finally:
            for request_id in outputs.open:
                self._leave(request_id)

    async def generate(self, *requests: Request) -> AsyncGenerator[StepOutput, None]:
        """Outputs of all these requests as they come, until each has finished; see `reading`.

        Close the iterator (`contextlib.aclosing`) to abort what still runs.
        """
        with self.reading(*requests) as outputs:
            while outputs.open:
                yield await outputs.next()

    def abort(self, request_id: str) -> bool:
        """End a request by its exact id: its reader gets FinishReason.ABORT at once."""
        stream = self._leave(request_id)
        if stream is None:
            return False
        stream.put(StepOutput(request_id=request_id, finish=FinishReason.ABORT))
        return True

    def _leave(self, request_id: str) -> Outputs | None:
        """Tell the engine that nobody waits for this request; its stream, where it ran."""
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            self._leaving[0].append(stream.requests[request_id])
            self._send(Abort(request_id))
        return stream

    async def flush(self) -> bool:
        """Empty the prefix cache; False where requests run or wait. EngineUnavailable."""
        told: Flushed = await self._ask(Flush)
        return told.done

    async def look(self, seconds: float, hertz: float) -> ProcessSeen:
        """What the engine's threads do for some seconds. EngineUnavailable where it cannot tell."""
        told: Looked = await self._ask(lambda number: Look(number, seconds, hertz))
        if told.seen is None:
            raise EngineUnavailable(told.error)
        return told.seen

    async def start_profile(self, wish: ProfileWish) -> None:
        """Have the engine begin a profile. EngineUnavailable; ValueError says why it did not."""
        await self._command_profile(lambda number: StartProfile(number, wish))

    async def stop_profile(self) -> ProfileEnded:
        """End the profile; what became of it. EngineUnavailable; ValueError where none runs."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[ProfileEnded] = loop.create_future()
        self._profile_ends.append(ended)
        try:
            await self._command_profile(StopProfile)
            return await ended
        finally:
            self._profile_ends.remove(ended)

    async def _command_profile(self, command: Callable[[int], StartProfile | StopProfile]) -> None:
        told: ProfileTold = await self._ask(command)
        if told.error:
            raise ValueError(told.error)

    async def _ask(self, command: Callable[[int], Command]) -> Any:
        """Send a command under a number of its own; the message that answers it."""
        if not self.ready:
            raise EngineUnavailable(self.reason)
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._send(command(number))
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    async def close(self, patience_s: float) -> None:
        """End the engine process; running requests end with an error."""
        self._fail_all("the server is closing")
        await self._supervisor.close(patience_s)

    def on_message(self, message: Answer) -> None:
        """Hand the engine's words to whom they concern (called by the supervisor)."""
        if isinstance(message, StepMessage):
            self.stats = message.stats or self.stats
            self.figures = message.figures or self.figures
            if self._leaving[0] or self._leaving[1]:
                self._leaving = ([], self._leaving[0])
            for output in message.outputs:
                self._deliver(output)
        elif isinstance(message, Refused):
            stream = self._streams.pop(message.request_id, None)
            if stream is not None:
                kind = QueueFull if message.later else RequestRefused
                stream.fail(kind(message.text))
        elif isinstance(message, (Flushed, Looked, ProfileTold)):
            _settle(self._answers.get(message.number), message)
        else:
            self.last_profile = message
            for ended in self._profile_ends:
                _settle(ended, message)

    def on_down(self, reason: str) -> None:
        """End every request with an error (called by the supervisor)."""
        self._outbox.clear()
        running = [stream.requests[name] for name, stream in self._streams.items()]
        self._suspects.died([*running, *self._leaving[0], *self._leaving[1]])
        self._leaving = ([], [])
        self._fail_all(f"the engine process died: {reason}")
        # Its slots and pages went with it; the counters stay what they were.
        self.stats = msgspec.structs.replace(
            self.stats, running=0, queued=0, pages_free=0, pages_cached=0, pages_held=0
        )
        self._past_errors.update(self.figures.chip_errors)
        self.figures = msgspec.structs.replace(
            self.figures, waiting={}, tokens_in_flight=0, chip_errors={}
        )
        for answer in (*self._answers.values(), *self._profile_ends):
            if not answer.done():
                answer.set_exception(EngineUnavailable(reason))

    def _submit(self, requests: tuple[Request, ...]) -> Outputs:
        if not self.ready:
            raise EngineUnavailable(self.reason)
        for request in requests:
            if request.id in self._streams:
                raise RequestRefused(f"request id {request.id!r} is in use; choose another")
            self._suspects.check(request)
        stream = Outputs({request.id: request for request in requests}, self._backlog)
        for request in requests:
            self._streams[request.id] = stream
            self._send(Submit(request))
        return stream

    def _deliver(self, output: StepOutput) -> None:
        if output.timeline and self.on_timeline is not None:
            self.on_timeline(output.request_id, output.timeline)
        stream = self._streams.get(output.request_id)
        if stream is None:
            return  # aborted here before the engine knew
        if output.finish is not None:
            del self._streams[output.request_id]
            if output.finish is not FinishReason.ERROR:
                self._suspects.finished(stream.requests[output.request_id])
        if not stream.put(output):
            self._drop_slow(stream)

    def _drop_slow(self, stream: Outputs) -> None:
        """The reader of this stream is too far behind: end its requests, free its memory."""
        stream.drop()
        text = f"the client reads too slowly: {self._backlog} outputs were waiting"
        for request_id in list(stream.open):
            self._leave(request_id)
            stream.put(StepOutput(request_id=request_id, finish=FinishReason.ERROR, error=text))

    def _fail_all(self, text: str) -> None:
        streams, self._streams = self._streams, {}
        for request_id, stream in streams.items():
            stream.put(StepOutput(request_id=request_id, finish=FinishReason.ERROR, error=text))

    def _send(self, command: Command) -> None:
        """Everything that is sent in one turn of the event loop travels in one frame."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._send_outbox)
        self._outbox.append(command)

    def _send_outbox(self) -> None:
        items, self._outbox = self._outbox, []
        if items:
            self._supervisor.send(items)


_T = TypeVar("_T")


def _settle(answer: asyncio.Future[_T] | None, result: _T) -> None:
    if answer is not None and not answer.done():
        answer.set_result(result)
