"""The start of an engine's process, also before it is known what it is to run.

Imports little, so that such a process is there early: it imports what engines need while its
server reads flags and imports its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anychip.environment import engine_environment

BUILDER_MODULE = "anychip.engine.build"
"""Where the engines that serve are built; see `client.DEFAULT_BUILDER`."""

# The server's own import path goes along, so that the child finds what the server found. It asks
# for its end at the server's death before it takes its time to import.
_START = (
    "import sys; fd, parent, ahead, *sys.path = sys.argv[1:]; "
    "from anychip.collecting import rest; rest(); "
    "from anychip.engine.parent import die_with; die_with(int(parent)); "
    "from anychip.engine.process import main; sys.exit(main(int(fd), ahead))"
)


@dataclass
class Spawned:
    """A process, and the server's end of its socket, which whoever talks to it takes over."""

    process: subprocess.Popen[bytes]
    ours: socket.socket

    @property
    def lives(self) -> bool:
        """Whether it is still there."""
        return self.process.poll() is None

    def end(self) -> None:
        """Kill the process unless it has ended, and wait for that. The socket is closed."""
        self.ours.close()
        if self.lives:
            self.process.kill()
        self.process.wait()


def spawn(ahead: str = "") -> Spawned:
    """Start a process that imports the module `ahead`, if any, and waits for its `Boot`.

    The kernel ends it with the thread that started it: call this from the thread that lives as
    long as the server. Raises OSError.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), ahead, *sys.path]
            process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                pass_fds=(theirs.fileno(),),
                env=engine_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is the server's to answer
            )
    except BaseException:
        ours.close()
        raise
    return Spawned(process, ours)


@contextmanager
def spawned_ahead() -> Iterator[Spawned]:
    """A process for the engine of a server that is about to be configured. Whatever becomes of
    that, nothing of it is left behind."""
    spawned = spawn(BUILDER_MODULE)
    try:
        yield spawned
    finally:
        spawned.end()
