"""A program behind a pseudo-terminal, as a person at a keyboard has it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

from served import ENVIRONMENT

# The program gets the terminal as its own, so that Ctrl-C reaches it as a signal.
_START = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Typed:
    """A running command. Use it as a context manager."""

    def __init__(self, *words: str, **environ: str) -> None:
        self._ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, sys.executable, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**ENVIRONMENT, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environ},
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""

    def __enter__(self) -> Typed:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, text: str, limit_s: float = 60.0) -> str:
        """Everything shown up to `text`, and that; later looks begin behind it."""
        deadline = time.monotonic() + limit_s
        while text not in self.screen:
            left = deadline - time.monotonic()
            if left < 0 or not self._look(left):
                raise AssertionError(f"waited in vain for {text!r}; shown: {self.screen!r}")
        seen, _, self.screen = self.screen.partition(text)
        return seen + text

    def end(self) -> int:
        """Wait for its end; the exit code."""
        while self._look(60.0):
            pass
        return self.process.wait(60)

    def _look(self, limit_s: float) -> bool:
        """Take in what is shown next; False at the end."""
        if not select.select([self._ours], [], [], limit_s)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
