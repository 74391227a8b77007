"""One run of the engine process, seen from the server: start, messages, end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from anychip.engine.connection import FRAME_HEADER, PeerGone, encode_frame, frame_length
from anychip.engine.messages import Boot, Command, Commands, EngineMessage
from anychip.engine.spawn import Spawned, spawn

log = logging.getLogger("anychip.engine")

_EXIT_POLL_S = 0.01
KILL_PATIENCE_S = 10.0
"""How long a killed process may take to be gone, seconds."""

Take = Callable[[EngineMessage], None]


class Hearing(asyncio.Protocol):
    """The server's end of the connection. Each message is handed on in the turn of the event loop
    in which its last byte arrives: a task that waited for it would have to be woken first.

    over: done once nothing more can come; has the error where taking a message raised one.
    """

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._decoder: msgspec.msgpack.Decoder[EngineMessage] = msgspec.msgpack.Decoder(
            EngineMessage
        )
        self._held = bytearray()  # the beginning of a frame, or what came before `begin`
        self._wanted = 0  # bytes of it that make the frame whole
        self._take: Take | None = None

    def begin(self, take: Take) -> None:
        """Hand messages to `take` from now on, first those that have come already."""
        self._take = take
        self.data_received(b"")

    def end(self) -> None:
        """Hand on nothing more."""
        self._take = _drop

    def data_received(self, data: bytes) -> None:
        """Hand on what is whole, and keep the rest."""
        take = self._take
        if self._held or take is None:
            self._held += data
            if take is None or len(self._held) < self._wanted:
                return
            data, self._held = bytes(self._held), bytearray()
        begin, size, self._wanted = 0, len(data), FRAME_HEADER.size
        while begin < size:
            body = begin + FRAME_HEADER.size
            try:
                end = body + frame_length(data, begin) if body <= size else body
                if end > size:
                    self._held += data[begin:]
                    self._wanted = end - begin
                    return
                message = self._decoder.decode(data[body:end])
            except (PeerGone, msgspec.MsgspecError) as error:
                log.error("what came from the engine is no message, so it is given up: %s", error)
                self._finish(None)
                return
            try:
                take(message)
            except Exception as error:  # noqa: BLE001 (raised by whoever waits for `over`)
                self._finish(error)
                return
            begin = end

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more comes, whether the other end has closed or the connection is broken."""
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        self.end()
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


def _drop(message: EngineMessage) -> None:
    """Take nothing."""


class EngineChild:
    """A running engine process. `launch` makes it; `end` must be called, whatever happened."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        hearing: Hearing,
        writing: asyncio.WriteTransport,
    ) -> None:
        self._process = process
        self._hearing = hearing
        self._writing = writing

    @classmethod
    async def launch(cls, boot: Boot, spawned: Spawned | None = None) -> EngineChild:
        """Hand a process its `Boot`: the one that was spawned ahead, where it still lives, or one
        that is started now (see `spawn`)."""
        if spawned is None or not spawned.lives:
            spawned = spawn()
        loop = asyncio.get_running_loop()
        writing, hearing = await loop.create_unix_connection(Hearing, sock=spawned.ours)
        child = cls(spawned.process, hearing, writing)
        writing.write(encode_frame(boot))
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def listen(self, take: Take) -> None:
        """Hand each message to `take` until the process has ended or closed its socket.

        Raises what `take` raises.
        """
        self._hearing.begin(take)
        try:
            await self._hearing.over
        finally:
            self._hearing.end()

    def send(self, items: Sequence[Command]) -> None:
        """Send commands; to a process that has ended they are lost."""
        if not self._writing.is_closing():
            self._writing.write(encode_frame(Commands(list(items))))

    def kill(self) -> None:
        """End the process at once, and what it started: a compiler, on the first start."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self, patience_s: float, kill_s: float = KILL_PATIENCE_S) -> int | None:
        """Wait up to `patience_s` for the process to end on its own, then kill it; its exit code.

        Negative: the number of the signal that ended it. None: `kill_s` seconds after SIGKILL it
        is still there, as a process is that waits inside the kernel.
        """
        try:
            if not await self._gone(patience_s):
                self.kill()
                await self._gone(kill_s)
        finally:
            self.kill()
            self._writing.close()
        code = self._process.poll()
        return None if code is None else int(code)

    async def _gone(self, within_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + within_s
        while self._process.poll() is None:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_EXIT_POLL_S)
        return True


def describe_exit(code: int) -> str:
    """An exit code in words: `exit code 3`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
