"""A child process with a simulated card, asked over its standard streams."""

import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class Worker:
    """One question at a time. A kernel exception ends its use."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def exchange(self, message: Any) -> Any:
        """The answer; the length, then the pickle, either way."""
        data = pickle.dumps(message)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(len(data).to_bytes(8, "little") + data)
        self.process.stdin.flush()
        size = self.process.stdout.read(8)
        assert size, f"the worker ended: {self.process.wait()}"
        return pickle.loads(self.process.stdout.read(int.from_bytes(size, "little")))


@contextmanager
def started_worker(program: Sequence[str], environment: Mapping[str, str]) -> Iterator[Worker]:
    """A Python program that answers, ended by the end of its input."""
    process = subprocess.Popen(
        [sys.executable, *program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Worker(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
