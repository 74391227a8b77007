"""The engine process: builds the engine, then reads commands, steps and answers until told to end.

The server starts it (`child.py`). It ends when it is told to, when the server's end of the socket
closes, when the server dies (the kernel sends SIGKILL), and when the chip is lost.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from anychip import collecting
from anychip.config import ServeConfig
from anychip.contract.errors import ChipError
from anychip.engine.connection import Connection, PeerGone
from anychip.engine.log_lines import facts_of
from anychip.engine.looking import Looking
from anychip.engine.messages import (
    Abort,
    Boot,
    Command,
    Commands,
    Died,
    EngineInfo,
    Flush,
    Flushed,
    LogLine,
    Look,
    ProfileEnded,
    ProfileTold,
    ProfileWish,
    Ready,
    Refused,
    StartError,
    StartFailed,
    StartProfile,
    StepMessage,
    StopProfile,
    Submit,
)
from anychip.engine.meter import fact_of
from anychip.engine.passing import Passing
from anychip.figures import EngineFigures
from anychip.plan import SchedulerStats
from anychip.request import Request, StepOutput
from anychip.schedule.refusal import QueueFull, RequestRefused

HEARTBEAT_S = 1.0
"""How often an idle engine says that it lives."""

EXIT_OK = 0
EXIT_START_FAILED = 3


class ServedEngine(Protocol):
    """What the loop needs of an engine; `engine.py` has the one that serves."""

    def submit(self, request: Request) -> None:
        """Queue a request; RequestRefused where it can never run."""

    def abort(self, request_id: str) -> bool:
        """End a request by its exact id."""

    def flush_cache(self) -> bool:
        """Empty the prefix cache unless something runs or waits."""

    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def step(self) -> list[StepOutput]:
        """One step; raises only what ends the process."""

    def stats(self) -> SchedulerStats:
        """A snapshot for metrics."""

    def figures(self) -> EngineFigures | None:
        """What was counted, where it is time to tell; never raises."""

    def start_profile(self, wish: ProfileWish, on_end: Callable[[ProfileEnded], None]) -> None:
        """Begin a profile. ValueError says why it cannot."""

    def stop_profile(self) -> None:
        """End it. ValueError where none runs."""

    def serve(self, loop: Callable[[], None]) -> None:
        """Run a loop that steps, in the thread that it belongs to."""

    def close(self) -> None:
        """Give the chip back."""


Builder = Callable[[ServeConfig, Callable[[str], None]], tuple[ServedEngine, EngineInfo]]
"""(config, report) → engine and its facts. report: takes lines for the start-up log."""


def main(fd: int, ahead: str = "") -> int:
    """Run the engine process on an inherited socket; the exit code.

    ahead: a module to import before the server says what to do.
    """
    _leave_signals_to_the_server()
    os.set_inheritable(fd, False)
    connection = Connection(socket.socket(fileno=fd))
    try:
        if ahead:
            importlib.import_module(ahead)
        return _boot(connection)
    except PeerGone:
        return EXIT_OK
    finally:
        connection.close()


def _leave_signals_to_the_server() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _boot(connection: Connection) -> int:
    boot: Boot = connection.receive_one(msgspec.msgpack.Decoder(Boot))
    logging.basicConfig(level=boot.log_level.upper(), handlers=[_Forwarder(connection)])
    try:
        config = msgspec.msgpack.decode(boot.config, type=ServeConfig)
        build = _find(boot.builder)
        collecting.resume()  # with the imports behind it, and before weights come in
        engine, info = build(config, _reporter(connection))
    except StartError as error:
        connection.send(StartFailed(str(error)))
        return EXIT_START_FAILED
    except Exception as error:
        connection.send(StartFailed(_unexpected(error)))
        raise
    connection.send(Ready(info))
    return _serve(connection, engine)


def _serve(connection: Connection, engine: ServedEngine) -> int:
    try:
        engine.serve(EngineLoop(connection, engine).run)
    except PeerGone:
        raise
    except Exception as error:
        fact = fact_of(error) if isinstance(error, ChipError) else None
        connection.send(Died(_unexpected(error), fact))
        raise
    finally:
        engine.close()
    return EXIT_OK


def _unexpected(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _find(name: str) -> Builder:
    module, _, function = name.partition(":")
    builder: Builder = getattr(importlib.import_module(module), function)
    return builder


def _reporter(connection: Connection) -> Callable[[str], None]:
    def report(line: str) -> None:
        connection.send(LogLine(logging.INFO, str(line), isinstance(line, Passing)))

    return report


class _Forwarder(logging.Handler):
    """Sends log records to the server, which writes the log."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # the server's log adds the rest
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record; one that cannot be formatted is told on standard error."""
        try:
            self._connection.send(
                LogLine(
                    record.levelno,
                    self.format(record),
                    logger=record.name,
                    facts=facts_of(record),
                    when=record.created,
                )
            )
        except PeerGone:
            return  # the loop notices on its own
        except Exception:  # noqa: BLE001 (logging's rule: reported by handleError, never raised)
            self.handleError(record)


class EngineLoop:
    """Commands in, one step, outputs out; single-threaded."""

    def __init__(self, connection: Connection, engine: ServedEngine) -> None:
        self._connection = connection
        self._engine = engine
        self._decoder = msgspec.msgpack.Decoder(Commands)
        self._closed = False
        self._looking = Looking(connection)

    def run(self) -> None:
        """Serve until `Close`. PeerGone where the server has left."""
        self._looking.runs_the_loop()
        while self.turn():
            pass

    def turn(self) -> bool:
        """Take in what came, make one step, tell of it; False once `Close` has come."""
        engine = self._engine
        works = engine.has_work()
        frames = self._connection.receive(0.0 if works else HEARTBEAT_S)
        for frame in frames:
            for command in self._decoder.decode(frame).items:
                self._apply(command)
            works = engine.has_work()
        if self._closed:
            return False
        outputs = engine.step() if works else []
        figures = engine.figures()
        # While answers only go on, the books are told with the figures, now and then.
        goes_on = outputs and not frames and not [output for output in outputs if output.finish]
        stats = None if goes_on and figures is None else engine.stats()
        self._connection.send(StepMessage(outputs, stats, figures))
        return True

    def _apply(self, command: Command) -> None:
        if isinstance(command, Submit):
            self._submit(command.request)
        elif isinstance(command, Abort):
            self._engine.abort(command.request_id)
        elif isinstance(command, Flush):
            self._connection.send(Flushed(command.number, self._engine.flush_cache()))
        elif isinstance(command, (StartProfile, StopProfile)):
            self._connection.send(ProfileTold(command.number, self._profile(command)))
        elif isinstance(command, Look):
            self._looking.begin(command)
        else:
            self._closed = True

    def _profile(self, command: StartProfile | StopProfile) -> str:
        """Obey; why not, where that is refused."""
        try:
            if isinstance(command, StartProfile):
                self._engine.start_profile(command.wish, self._tell_profile)
            else:
                self._engine.stop_profile()
        except ValueError as error:
            return str(error)
        return ""

    def _tell_profile(self, ended: ProfileEnded) -> None:
        """Called from the profile's thread."""
        with suppress(PeerGone):  # the loop notices on its own
            self._connection.send(ended)

    def _submit(self, request: Request) -> None:
        try:
            self._engine.submit(request)
        except RequestRefused as error:
            self._connection.send(Refused(request.id, str(error), isinstance(error, QueueFull)))
