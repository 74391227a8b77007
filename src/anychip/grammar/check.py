"""Whether a grammar can be served, found out before any state exists: a process of its own compiles
it under limits of time and memory, and can be killed.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import msgspec

from anychip.grammar.backend import LLGUIDANCE
from anychip.grammar.check_frames import CheckReply, CheckSetup
from anychip.grammar.errors import GrammarError, NotChecked
from anychip.grammar.limits import GrammarLimits, check_size
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec
from anychip.text.framed_child import (
    FROM_OUTSIDE,
    PATIENCE_S,
    Child,
    Unresponsive,
    end_child,
    exchange,
    send,
    start_child,
)

_THREADS = 4
"""Checks that wait for their turn; more wait for one of these."""
_REMEMBERED_BYTES = 8 << 20
"""Of grammars that were checked, so that the next request with one need not wait."""


class _Job:
    """One check. cancelled: nobody waits for it any more."""

    cancelled = False


class GrammarCheck:
    """Checks one grammar at a time, in a process started on first use and again after it had to
    end. Thread-safe.

    The child keeps the limits itself, and ends when its input is closed, so nothing outlives
    `close()`, a crash of the parent, or the limits.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        limits: GrammarLimits | None = None,
        backend: str = LLGUIDANCE,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """patience_s: how long the child may stand still beyond its limit before it is ended."""
        self._limits = limits or GrammarLimits()
        self._patience_s = patience_s
        self._setup = CheckSetup(
            vocabulary.pieces,
            vocabulary.special,
            vocabulary.eos_ids,
            vocabulary.size,
            self._limits,
            backend,
        )
        self._pool = ThreadPoolExecutor(_THREADS, "grammar")
        self._turn = threading.Lock()  # held while the child works
        self._state = threading.Lock()  # held for moments, never while something waits
        self._child: Child | None = None
        self._running: _Job | None = None
        self._known: OrderedDict[GrammarSpec, CheckReply] = OrderedDict()
        self._known_bytes = 0

    def start(self) -> None:
        """Start the process, so that the first check need not wait for it; does not wait."""
        with self._turn:
            try:
                self._live()
            except Unresponsive:
                self._end()

    def check(self, spec: GrammarSpec) -> None:
        """Return where `spec` can be served; GrammarError where not, NotChecked
        where nobody could tell. Waits for its turn."""
        check_size(spec, self._limits)
        _raise(self._remembered(spec) or self._reply(spec, _Job()))

    async def check_async(self, spec: GrammarSpec) -> None:
        """The same, waiting in a thread. Cancelling it ends the compile at once."""
        check_size(spec, self._limits)
        reply = self._remembered(spec)
        if reply is None:
            job = _Job()
            loop = asyncio.get_running_loop()
            try:
                reply = await loop.run_in_executor(self._pool, self._reply, spec, job)
            except asyncio.CancelledError:
                self._cancel(job)
                raise
        _raise(reply)

    def close(self) -> None:
        """End the process, what it is doing, and the threads. A later check starts new ones."""
        with self._state:
            if self._child is not None:
                self._child.kill()
        pool, self._pool = self._pool, ThreadPoolExecutor(_THREADS, "grammar")
        pool.shutdown(cancel_futures=True)
        with self._turn:
            self._end()

    def _reply(self, spec: GrammarSpec, job: _Job) -> CheckReply:
        with self._turn:
            return self._remembered(spec) or self._ask(spec, job)

    def _ask(self, spec: GrammarSpec, job: _Job) -> CheckReply:
        """The child's answer, or what its end says of the grammar. Holds the turn."""
        try:
            child = self._live()
            with self._state:
                self._running = None if job.cancelled else job
            if job.cancelled:
                return CheckReply("the request was cancelled")
            limit_s = self._limits.compile_s + self._patience_s
            body = exchange(child, msgspec.msgpack.encode(spec), limit_s)
        except Unresponsive:
            self._end()
            return CheckReply(
                "the process that checks grammars stood still and was ended; send it again",
                later=True,
            )
        finally:
            with self._state:
                self._running = None
        if job.cancelled:
            self._end()  # it may have been killed in this very moment
            return CheckReply("the request was cancelled")
        if body is not None:
            reply = msgspec.msgpack.decode(body, type=CheckReply)
        else:
            status = self._end()
            reply = self._obituary(status)
            if reply.later:
                return reply
        self._remember(spec, reply)
        return reply

    def _cancel(self, job: _Job) -> None:
        with self._state:
            job.cancelled = True
            if self._running is job and self._child is not None:
                self._child.kill()

    def _remembered(self, spec: GrammarSpec) -> CheckReply | None:
        with self._state:
            return self._known.get(spec)

    def _remember(self, spec: GrammarSpec, reply: CheckReply) -> None:
        with self._state:
            self._known[spec] = reply
            self._known_bytes += _size(spec)
            while self._known_bytes > _REMEMBERED_BYTES:
                self._known_bytes -= _size(self._known.popitem(last=False)[0])

    def _live(self) -> Child:
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is not None:
            return self._child
        child = start_child("anychip.grammar.check_process")
        with self._state:
            self._child = child
        send(child, msgspec.msgpack.encode(self._setup), self._patience_s)
        return child

    def _end(self) -> int:
        """End the child and wait for it; its exit status."""
        with self._state:
            child, self._child = self._child, None
        return 0 if child is None else end_child(child)

    def _obituary(self, status: int) -> CheckReply:
        limits = self._limits
        if status == -signal.SIGALRM:
            return CheckReply(
                f"the grammar takes longer than {limits.compile_s:g} s to compile; make it simpler "
                "(fewer alternatives, smaller counts, patterns that do not overlap)"
            )
        if -status in FROM_OUTSIDE:
            return CheckReply(
                "the process that checks grammars was killed; send it again", later=True
            )
        if status >= 0:
            raise RuntimeError(f"the process that checks grammars ended with status {status}")
        return CheckReply(
            f"the grammar needs more than {limits.compile_bytes >> 20} MiB to compile, or crashed "
            f"the process that does it (signal {-status}); make it simpler"
        )


def _raise(reply: CheckReply) -> None:
    if reply.later:
        raise NotChecked(reply.error or "", reply.pointer)
    if reply.error is not None:
        raise GrammarError(reply.error, reply.pointer)


def _size(spec: GrammarSpec) -> int:
    return len(spec.text) + 512
