"""Fetching a model by its name, seen from the program that wants it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

import msgspec

from anychip.model.hub.errors import HubError
from anychip.model.hub.messages import Event, Failed, Found, Note, Progress, Wanted

_TAIL = 3
"""Last lines that a process which broke down has said, to be shown."""


class Watch(Protocol):
    """Is told how a fetch goes."""

    def progress(self, name: str, done: int, total: int) -> None:
        """Bytes that are here, and bytes in all."""

    def note(self, name: str, text: str) -> None:
        """Something that the user should know."""


def fetch(wanted: Wanted, watch: Watch) -> Path:
    """The model's folder or .gguf file; on any end of this call no download goes on.

    Raises HubError.
    """
    with tempfile.TemporaryFile() as said, _child(said) as (questions, answers):
        with suppress(BrokenPipeError):  # it has ended already: told below
            questions.write(msgspec.json.encode(wanted) + b"\n")
        for line in answers:
            event: Event = msgspec.json.decode(line, type=Event)
            match event:
                case Progress(done, total):
                    watch.progress(wanted.id, done, total)
                case Note(text):
                    watch.note(wanted.id, text)
                case Failed(text):
                    raise HubError(text)
                case Found(path):
                    return Path(path)
        raise HubError(f"{wanted.id}: the process that fetches it broke down: {_tail(said)}")


@contextmanager
def _child(said: IO[bytes]) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Its input and its output. said: takes what it prints beside its answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anychip.model.hub.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        bufsize=0,
        start_new_session=True,  # a terminal's Ctrl-C is ours to answer
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process that answers was started without pipes")
        with process.stdin, process.stdout:
            yield process.stdin, process.stdout
    finally:
        process.kill()
        process.wait()


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    return " / ".join([line for line in lines if line][-_TAIL:]) or "it said nothing"
