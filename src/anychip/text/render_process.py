"""The process that renders chat templates, seen from its parent."""

from __future__ import annotations

import signal
import threading
from typing import Any

import msgspec

from anychip.text.errors import RendererLost, TemplateError
from anychip.text.framed_child import (
    FROM_OUTSIDE,
    PATIENCE_S,
    Child,
    Unresponsive,
    end_child,
    exchange,
    start_child,
)
from anychip.text.render_frames import RenderJob, RenderReply


class RenderProcess:
    """One renderer, started on first use and again after it had to end. Thread-safe.

    limit_s: the longest a template may take. The child itself keeps that time, and ends when its
    input is closed, so nothing outlives `close()`, a crash of the parent, or the limit. patience_s:
    how long it may stand still beyond that time before it is ended from here.
    """

    def __init__(self, limit_s: float, patience_s: float = PATIENCE_S) -> None:
        self._limit_s, self._patience_s = limit_s, patience_s
        self._lock = threading.Lock()
        self._child: Child | None = None

    def start(self) -> None:
        """Start the process, so that the first render need not wait for it; does not wait."""
        with self._lock:
            self._running()

    def render(self, template: str, variables: dict[str, Any] | None) -> str:
        """The rendered text; with `variables` None the template is only compiled ("").

        Raises TemplateError with the template's own message, or naming the limit it ran into;
        RendererLost where the process was ended from outside, or stands still.
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
        try:
            body = exchange(self._running(), frame, self._limit_s + self._patience_s)
        except Unresponsive:
            self._end()
            raise RendererLost(
                "the process that renders chats stood still and was ended; send it again"
            ) from None
        if body is None:
            raise self._obituary(self._end())
        return body

    def _running(self) -> Child:
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            self._child = start_child("anychip.text.render")
        return self._child

    def _end(self) -> int:
        """End it and wait for it; its exit status."""
        child, self._child = self._child, None
        return 0 if child is None else end_child(child)

    def _obituary(self, status: int) -> TemplateError | RendererLost:
        if status == -signal.SIGALRM:
            return TemplateError(
                f"the chat template took longer than {self._limit_s:g} s and was stopped"
            )
        if -status in FROM_OUTSIDE:
            return RendererLost("the process that renders chats was killed; send it again")
        return TemplateError(
            f"the chat template ended its renderer (exit status {status}) and was stopped"
        )


def _encode(job: RenderJob) -> bytes:
    try:
        return msgspec.msgpack.encode(job)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TemplateError(f"the messages cannot be given to a chat template: {error}") from error
