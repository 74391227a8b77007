"""One server on the loopback interface: started, timed to its first token, measured, ended."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path

from race.completions import HOST, BatchRun, Refused, WrongAnswer, complete, run_batch
from race.processes import Memory, end, family, memory_of
from race.workloads import Batch, Job

POLL_SECONDS = 0.02
LOADING = 503
"""What a server answers that listens before it can serve."""

FIRST = Job((5000, 5001, 5002, 5003), 1)
"""What a server is asked for until it answers."""


class ServerFailed(RuntimeError):
    """It did not start, or ended: the end of its log tells why."""


class Server:
    """A server's processes. Use it as a context manager: what it started ends with it."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        """command: `env` first, which becomes the program under the same id. log: takes what the
        server prints."""
        self._port, self._log = port, log
        self._memory = Memory(0, 0, 0)
        self.stubborn: list[int] = []
        with log.open("ab") as file:
            self._begun = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.stubborn = end(self._process)

    @property
    def pid(self) -> int:
        """Of the process that was started, which leads the others."""
        return self._process.pid

    def first_token(self, limit: float) -> float:
        """Seconds from the start of the process to its first token. limit: seconds.

        Raises ServerFailed.
        """
        last: Exception | None = None
        while time.perf_counter() - self._begun < limit:
            if self._process.poll() is not None:
                raise self._failed(f"the server ended with {self._process.returncode}")
            try:
                asyncio.run(self._complete_within(limit))
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                last = error  # nobody listens yet
            except Refused as error:
                if error.status != LOADING:
                    raise self._failed(str(error)) from error
                last = error
            else:
                seconds = time.perf_counter() - self._begun
                self._look()
                return seconds
            time.sleep(POLL_SECONDS)
        raise self._failed(f"no token within {limit:g} s; the last try: {last}")

    async def _complete_within(self, limit: float) -> None:
        await asyncio.wait_for(complete(self._port, FIRST), limit)

    def run(self, batch: Batch, limit: float) -> BatchRun:
        """Run a batch. Raises WrongAnswer, ServerFailed (refused, ended, too slow)."""
        try:
            return asyncio.run(run_batch(self._port, batch, limit))
        except WrongAnswer:
            raise
        except (Refused, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise self._failed(f"{batch.label}: {type(error).__name__}: {error}") from error
        finally:
            self._look()

    @property
    def memory(self) -> Memory:
        """The most that its processes held whenever they were looked at: after the first token
        and after each batch."""
        return self._memory

    @property
    def pids(self) -> list[int]:
        """Its processes that are alive."""
        return family(self._process.pid)

    def _look(self) -> None:
        now, most = memory_of(self.pids), self._memory
        self._memory = Memory(
            max(now.peak, most.peak),
            max(now.shared_once, most.shared_once),
            max(now.processes, most.processes),
        )

    def _failed(self, why: str) -> ServerFailed:
        lines = self._log.read_text(errors="replace").splitlines()[-12:]
        return ServerFailed("\n  ".join([f"{why}; the end of {self._log}:", *lines]))


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
