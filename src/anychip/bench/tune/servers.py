"""A server for one run: a process of its own on a free loopback port, ended by its id."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from anychip.config import bare_environment

START_S = 1800.0
"""Until it must be ready: weights may be many, kernels may have to be built."""
GRACE_S = 30.0
_POLL_S = 0.02
_READY = re.compile(r"serves at (http://\S+)")
_SHOWN = 12

_MAIN = """
import sys
sys.path[:] = {path!r}
from anychip.engine.parent import die_with
die_with({parent})
from anychip.__main__ import main
sys.exit(main())
"""


class ServerFailed(RuntimeError):
    """It did not start, or ended; the text has the end of its log."""


class Server:
    """`with Server(words, log) as server` starts it, waits until it is ready, and ends it.

    words: of `anychip serve`, without address and port. log: takes what it prints.
    """

    def __init__(self, words: Sequence[str], log: Path, limit_s: float = START_S) -> None:
        self._words, self._log, self._limit_s = tuple(words), log, limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Server:
        """Raises ServerFailed, and then nothing runs."""
        code = _MAIN.format(path=sys.path, parent=os.getpid())
        address = ("--host", "127.0.0.1", "--port", "0", "--log-level", "info")
        with self._log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "serve", *self._words, *address],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=bare_environment(),
                start_new_session=True,  # Ctrl-C is for the one who measures
            )
        try:
            self.url = self._ready(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        return None if self._process is None else self._process.pid

    def _ready(self, process: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + self._limit_s
        while time.monotonic() < deadline:
            ended = process.poll() is not None  # looked at first: its log is then complete
            found = _READY.search(self._log.read_text(errors="replace"))
            if found:
                return found[1]
            if ended:
                raise self.failed(f"the server ended with {process.returncode}")
            time.sleep(_POLL_S)
        raise self.failed(f"the server was not ready within {self._limit_s:g} s")

    def failed(self, why: str) -> ServerFailed:
        """The error, with the end of the log."""
        lines = self._log.read_text(errors="replace").splitlines()[-_SHOWN:]
        return ServerFailed("\n  ".join([f"{why}; the end of {self._log}:", *lines]))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it twice (the second time means at once), then kill it and the session that it leads."""
    for number in (signal.SIGTERM, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
