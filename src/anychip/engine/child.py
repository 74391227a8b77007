"""One run of the engine process, seen from the server: start, messages, end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from anychip.config import engine_environment
from anychip.engine.connection import FRAME_HEADER, PeerGone, encode_frame, frame_length
from anychip.engine.messages import Boot, Command, Commands, EngineMessage

# The server's own import path goes along, so that the child finds what the server found.
_START = (
    "import sys; fd, parent, *sys.path = sys.argv[1:]; "
    "from anychip.collecting import rest; rest(); "
    "from anychip.engine.process import main; sys.exit(main(int(fd), int(parent)))"
)
_EXIT_POLL_S = 0.01
KILL_PATIENCE_S = 10.0
"""How long a killed process may take to be gone, seconds."""


class EngineChild:
    """A running engine process. `launch` makes it; `end` must be called, whatever happened."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[EngineMessage] = msgspec.msgpack.Decoder(
            EngineMessage
        )

    @classmethod
    async def launch(cls, boot: Boot) -> EngineChild:
        """Start the process and hand it its `Boot`.

        The kernel ends the child with the thread that started it: call this from the thread
        that lives as long as the server.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), *sys.path]
            process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                pass_fds=(theirs.fileno(),),
                env=engine_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is the server's to answer
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        child = cls(process, reader, writer)
        child._writer.write(encode_frame(boot))
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def receive(self) -> EngineMessage:
        """The next message. PeerGone when the process has ended or closed its socket."""
        frame = await _read_frame(self._reader)
        try:
            return self._decoder.decode(frame)
        except msgspec.MsgspecError as error:
            raise PeerGone(f"the engine sent what is no message: {error}") from error

    def send(self, items: Sequence[Command]) -> None:
        """Send commands; to a process that has ended they are lost."""
        if not self._writer.is_closing():
            self._writer.write(encode_frame(Commands(list(items))))

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
            self._writer.close()
        code = self._process.poll()
        return None if code is None else int(code)

    async def _gone(self, within_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + within_s
        while self._process.poll() is None:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_EXIT_POLL_S)
        return True


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame's body. PeerGone at the end of the stream, also in mid-frame."""
    try:
        header = await reader.readexactly(FRAME_HEADER.size)
        return await reader.readexactly(frame_length(header))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise PeerGone("the connection is closed") from error


def describe_exit(code: int) -> str:
    """An exit code in words: `exit code 3`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
