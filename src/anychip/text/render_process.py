"""The process that renders chat templates, seen from its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import IO, Any

import msgspec

from anychip.text.errors import TemplateError
from anychip.text.render_frames import RenderJob, RenderReply, read_frame, write_frame


class RenderProcess:
    """One renderer, started on first use and again after it had to end. Thread-safe.

    limit_s: the longest a template may take. The child itself keeps that time, and ends when its
    input is closed, so nothing outlives `close()`, a crash of the parent, or the limit.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, so that the first render need not wait for it; does not wait."""
        with self._lock:
            self._running()

    def render(self, template: str, variables: dict[str, Any] | None) -> str:
        """The rendered text; with `variables` None the template is only compiled ("").

        Raises TemplateError with the template's own message, or naming the limit it ran into.
        """
        frame = _encode(RenderJob(template, variables, self._limit_s))
        with self._lock:
            body = self._exchange(frame)
        reply = msgspec.msgpack.decode(body, type=RenderReply)
        if reply.error is not None:
            raise TemplateError(reply.error)
        return reply.text

    def close(self) -> None:
        """End the process. A later render starts a new one."""
        with self._lock:
            self._end()

    def _exchange(self, frame: bytes) -> bytes:
        child = self._running()
        source, sink = _pipes(child)
        try:
            write_frame(sink, frame)
            body = read_frame(source)
        except BrokenPipeError:
            body = None
        if body is None:
            raise TemplateError(self._obituary(self._end()))
        return body

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            command = [sys.executable, "-m", "anychip.text.render"]
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is the parent's to answer
            )
        return self._child

    def _end(self) -> int:
        """Close both pipes, which ends an idle child, and wait for it; its exit status."""
        child, self._child = self._child, None
        if child is None:
            return 0
        child.kill()
        for pipe in _pipes(child):
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # the unsent rest of a frame; its reader is gone
        return child.wait()

    def _obituary(self, status: int) -> str:
        if status == -signal.SIGALRM:
            return f"the chat template took longer than {self._limit_s:g} s and was stopped"
        return f"the chat template ended its renderer (exit status {status}) and was stopped"


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """The child's output to read from and its input to write to."""
    if child.stdout is None or child.stdin is None:
        raise RuntimeError("the renderer was started without pipes")
    return child.stdout, child.stdin


def _encode(job: RenderJob) -> bytes:
    try:
        return msgspec.msgpack.encode(job)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TemplateError(f"the messages cannot be given to a chat template: {error}") from error
